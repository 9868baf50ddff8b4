-- write_receipts.sql: keeps receipts.
-- In the transition transaction that holds their tasks, before the events.
INSERT INTO receipts (queue_id, uid, kind, receipt_ref, effect_ref, occurred, recorded, revision)
SELECT i.queue_id, i.uid, i.kind, i.receipt_ref, i.effect_ref, i.occurred, i.recorded, i.revision
FROM unnest($1::int[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::bigint[])
     AS i (queue_id, uid, kind, receipt_ref, effect_ref, occurred, recorded, revision)
