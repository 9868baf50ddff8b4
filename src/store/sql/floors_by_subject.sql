-- floors_by_subject.sql: the floors of some subjects; those that have none are left out.
-- In a later statement than the locks of whatever is decided by them; or alone. Probes the primary key.
SELECT f.queue_id, f.subject_id, f.min_version, f.revoked, f.reason, f.updated AS "updated: Timestamp", f.walk_due IS NOT NULL AS "walking!"
FROM unnest($1::int[], $2::text[]) AS i (queue_id, subject_id)
JOIN subjects f ON f.queue_id = i.queue_id AND f.subject_id = i.subject_id
