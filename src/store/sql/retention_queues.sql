-- retention_queues.sql: the queues that forget anything at all.
-- Alone. Scans the table: queues are few.
SELECT queue_id FROM queues
WHERE num_nonnulls(payload_retention_us, result_retention_us, evidence_retention_us) > 0
ORDER BY queue_id
