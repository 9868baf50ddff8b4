-- naive_pick.sql: locks the next READY task, with all that its worker is told; passes over what others hold.
-- First in the naive Claim. Walks live_ready_by_share.
SELECT l.uid, l.attempt, l.revision, l.deadline, t.task_id, t.kind, t.content_type, t.target, t.event_id, t.fairness_key,
       t.ordering_key, t.cost, t.priority, t.subjects, t.labels, t.options, t.digest, p.payload
FROM live l
JOIN tasks t ON t.queue_id = l.queue_id AND t.uid = l.uid
JOIN payloads p ON p.queue_id = l.queue_id AND p.uid = l.uid
WHERE l.share_id = $1 AND l.state = 'READY'
ORDER BY l.rank, l.position
LIMIT 1
FOR UPDATE OF l SKIP LOCKED
