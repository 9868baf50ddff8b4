-- events_by_task.sql: the log of some tasks, in order of revision.
-- In any transaction or none. Walks events_by_task in each partition.
SELECT e.uid, e.revision, e.time AS "time: Timestamp", e.kind, e.previous_state, e.state, e.cause, e.attempt, e.token,
       e.worker, e.evidence AS "evidence: Json<Evidence>"
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (SELECT * FROM events e WHERE e.queue_id = i.queue_id AND e.uid = i.uid OFFSET 0) AS e
ORDER BY e.uid, e.revision
