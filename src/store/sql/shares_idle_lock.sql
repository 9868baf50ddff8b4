-- shares_idle_lock.sql: locks shares to be removed; passes over those that somebody holds: a task of theirs may be on its way.
-- Before shares_remove, in its transaction. Sorted; probes the primary key.
SELECT s.queue_id, s.share_id
FROM unnest($1::int[], $2::int[]) AS i (queue_id, share_id)
JOIN shares s ON s.queue_id = i.queue_id AND s.share_id = i.share_id
ORDER BY s.queue_id, s.share_id
FOR UPDATE OF s SKIP LOCKED
