-- shares_hold.sql: keeps shares from being put to sleep, and tells whether they are awake.
-- In the transition transaction, after a task of theirs became READY. Probes the primary key.
SELECT s.queue_id, s.share_id, s.ready
FROM unnest($1::int[], $2::int[]) AS i (queue_id, share_id)
JOIN shares s ON s.queue_id = i.queue_id AND s.share_id = i.share_id
ORDER BY s.queue_id, s.share_id
FOR KEY SHARE OF s
