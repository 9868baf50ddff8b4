-- queue_write.sql: writes a queue's policy.
-- In PutQueue's transaction, under the queue's gate. Probes the primary key.
UPDATE queues
SET boundary = $2, paused = $3, on_unknown = $4, on_repair = $5, max_attempts = $6, initial_backoff_us = $7, max_backoff_us = $8,
    multiplier = $9, jitter = $10, default_ttl_us = $11, lease_us = $12, priority_step_us = $13, deadline_margin_us = $14,
    max_in_flight = $15, rate_per_second = $16, rate_burst = $17, max_unfinished = $18, etag = $19,
    payload_retention_us = $20, result_retention_us = $21, evidence_retention_us = $22
WHERE queue_id = $1
