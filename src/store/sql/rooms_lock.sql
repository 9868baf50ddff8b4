-- rooms_lock.sql: how many more tasks bounded queues and shares may accept, locked until those that are accepted now are committed.
-- In the submit transaction, after the shares, only for what has a limit. Probes the primary key.
SELECT r.queue_id, r.share_id, r.room, r.taken
FROM (SELECT i.queue_id, i.share_id FROM unnest($1::int[], $2::int[]) AS i (queue_id, share_id) ORDER BY i.queue_id, i.share_id) AS i
CROSS JOIN LATERAL (SELECT * FROM rooms r WHERE r.queue_id = i.queue_id AND r.share_id = i.share_id FOR NO KEY UPDATE) AS r
