-- shares_hold.sql: keeps shares from being put to sleep, and tells whether they are awake.
-- In the transition transaction, after a task of theirs became READY. Probes the primary key.
SELECT s.share_id, s.ready
FROM shares s
WHERE s.share_id = ANY ($1::int[])
ORDER BY s.share_id
FOR KEY SHARE OF s
