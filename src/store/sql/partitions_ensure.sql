-- partitions_ensure.sql: makes the log's next partitions, if they are not there yet.
-- Alone. Waits for other servers that do the same.
SELECT ensure_event_partitions() AS "made!"
