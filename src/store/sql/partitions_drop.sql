-- partitions_drop.sql: drops the log's partitions that hold nothing any more.
-- Alone. Gives up when the log is held for more than a moment.
SELECT drop_forgotten_event_partitions() AS "dropped!"
