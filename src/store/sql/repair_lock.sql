-- repair_lock.sql: locks a repair that is about to be changed, and reads it: of one row the lock itself gives the latest version.
-- In the transaction of an action or of a replay, after the live rows. Probes the primary key.
SELECT r.state, r.owner, r.next_action, r.receipt_ref, r.replayed_by, r.last_refusal
FROM repairs r
WHERE r.queue_id = $1 AND r.uid = $2
FOR NO KEY UPDATE OF r
