-- stall_leases.sql: the leases of a queue that had begun by $2, and when their workers were last heard of; at most $3 of them.
-- Alone, when leases of the queue have run out. Walks live_leased_by_share.
SELECT l.worker AS "worker!", greatest(l.lease_begin, l.heartbeat, l.effect_begun) AS "heard!: Timestamp", l.lease_us AS "lease_us!"
FROM live l
WHERE l.queue_id = $1 AND l.state = 'LEASED' AND l.lease_begin <= $2::timestamptz
LIMIT $3
