-- fill_partitions.sql: room in the log for what comes next: filling is faster than the server's loop.
-- Alone, before each page of tasks.
SELECT ensure_event_partitions()
