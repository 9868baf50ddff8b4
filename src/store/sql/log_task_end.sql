-- log_task_end.sql: the position of a task's last event, if any of its events is kept.
-- Alone. Walks events_by_task backwards in each partition.
SELECT e.position FROM events e WHERE e.queue_id = $1 AND e.uid = $2 ORDER BY e.revision DESC LIMIT 1
