-- stuck_key.sql: the ordering key of such a task; unlocked, for it never changes.
-- First in the transaction that leaves it to people. Probes the primary key.
SELECT l.key_id FROM live l WHERE l.queue_id = $1 AND l.uid = $2
