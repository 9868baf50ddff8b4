-- lock_tasks.sql: locks finished tasks, so that late evidence on each is counted and numbered by one writer at a time.
-- First in the transaction that keeps late evidence. Probes the primary key.
SELECT t.uid
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
JOIN tasks t ON t.queue_id = i.queue_id AND t.uid = i.uid
ORDER BY t.queue_id, t.uid
FOR NO KEY UPDATE OF t
