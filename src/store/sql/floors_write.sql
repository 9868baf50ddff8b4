-- floors_write.sql: writes floors that were raised, and from when on the loop walks over what they made stale.
-- In the transaction that holds their queues' gates alone. Sorted; probes the primary key.
INSERT INTO subjects (queue_id, subject_id, min_version, revoked, reason, updated, walk_due)
SELECT i.queue_id, i.subject_id, i.min_version, i.revoked, i.reason, i.updated, i.walk_due
FROM unnest($1::int[], $2::text[], $3::bigint[], $4::boolean[], $5::text[], $6::timestamptz[], $7::timestamptz[])
     AS i (queue_id, subject_id, min_version, revoked, reason, updated, walk_due)
ORDER BY i.queue_id, i.subject_id
ON CONFLICT (queue_id, subject_id) DO UPDATE
SET min_version = EXCLUDED.min_version, revoked = EXCLUDED.revoked, reason = EXCLUDED.reason, updated = EXCLUDED.updated,
    walk_due = EXCLUDED.walk_due
