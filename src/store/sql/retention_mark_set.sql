-- retention_mark_set.sql: moves the mark.
-- Last in the retention transaction. Probes the primary key.
INSERT INTO retention_marks (queue_id, what, ended, uid) VALUES ($1, $2, $3::timestamptz, $4)
ON CONFLICT (queue_id, what) DO UPDATE SET ended = excluded.ended, uid = excluded.uid
