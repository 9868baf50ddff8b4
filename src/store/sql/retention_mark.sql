-- retention_mark.sql: how far the walk over what has ended has come.
-- In the retention transaction. Probes the primary key.
SELECT m.ended AS "ended: Timestamp", m.uid FROM retention_marks m WHERE m.queue_id = $1 AND m.what = $2
