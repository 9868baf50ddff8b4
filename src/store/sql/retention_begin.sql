-- retention_begin.sql: takes a queue's retention for this transaction, unless another server has it, and reads the clock and what
-- the queue keeps for how long.
-- First in the retention transaction. Waits for nobody, so the clock may be read in it. Probes the primary key.
SELECT pg_try_advisory_xact_lock($1, q.queue_id) AS "taken!", app_now() AS "now!: Timestamp", q.payload_retention_us,
       q.result_retention_us, q.evidence_retention_us
FROM queues q
WHERE q.queue_id = $2
