-- shares_idle_lock.sql: locks shares to be removed; passes over those that somebody holds: a task of theirs may be on its way.
-- Before shares_remove, in its transaction. Sorted; probes the primary key.
SELECT s.share_id
FROM shares s
WHERE s.share_id = ANY ($1::int[])
ORDER BY s.share_id
FOR UPDATE OF s SKIP LOCKED
