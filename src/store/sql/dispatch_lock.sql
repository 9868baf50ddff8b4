-- dispatch_lock.sql: the queue's virtual time and its bucket, locked while its shares are compared. The transaction then commits without
-- waiting for the disk, because other servers wait for this lock: a barrier must follow.
-- In the claim transaction, only when several shares are awake or something is bounded. The tags are read in a later statement. Probes
-- the primary key.
SELECT virtual_time, rate_level, rate_at AS "rate_at: Timestamp", set_config('synchronous_commit', 'off', true) AS "mode"
FROM dispatch WHERE queue_id = $1 FOR NO KEY UPDATE
