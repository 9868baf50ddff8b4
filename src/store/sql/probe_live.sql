-- probe_live.sql: which of these unfinished tasks nobody holds.
-- In a transaction of its own, after a batch had to wait too long. Probes the primary key.
SELECT l.uid
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (SELECT l.uid FROM live l WHERE l.queue_id = i.queue_id AND l.uid = i.uid FOR UPDATE SKIP LOCKED) AS l
