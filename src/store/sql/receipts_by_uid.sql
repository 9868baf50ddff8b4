-- receipts_by_uid.sql: the receipts of some tasks, in the order in which they came.
-- Alone; or in the transition transaction, in a later statement than the tasks' locks. Walks the primary key.
SELECT r.uid, r.kind, r.receipt_ref, r.effect_ref, r.occurred AS "occurred: Timestamp", r.recorded AS "recorded: Timestamp"
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (SELECT * FROM receipts r WHERE r.queue_id = i.queue_id AND r.uid = i.uid OFFSET 0) AS r
ORDER BY r.uid, r.revision
