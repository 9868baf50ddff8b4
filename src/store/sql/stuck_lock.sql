-- stuck_lock.sql: locks a task whose row this version can't read or move, without reading it.
-- In the transaction that leaves it to people, after its key. Probes the primary key.
SELECT l.uid FROM live l WHERE l.queue_id = $1 AND l.uid = $2 FOR UPDATE OF l
