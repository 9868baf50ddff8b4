-- repair_actions.sql: the latest actions on a repair, newest first.
-- Alone. Walks the primary key backwards.
SELECT a.action, a.time AS "time: Timestamp", a.actor, a.reason, a.detail
FROM repair_actions a
WHERE a.queue_id = $1 AND a.uid = $2
ORDER BY a.number DESC
LIMIT $3
