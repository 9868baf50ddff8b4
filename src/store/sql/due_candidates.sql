-- due_candidates.sql: tasks that time alone has moved, the longest overdue first.
-- Alone, unlocked: the transition batch locks them and looks again. Walks live_by_due.
SELECT l.queue_id, l.uid, l.lease_expire AS "lease_expire: Timestamp"
FROM live l
WHERE l.due <= $1::timestamptz AND l.uid <> ALL ($2::uuid[])
ORDER BY l.due
LIMIT $3
