-- queues_page.sql: a page of queues by name, in the order of its bytes whatever the database's collation.
-- Alone. Scans the table: queues are few.
SELECT queue_id, name, boundary, paused, on_unknown, on_repair, max_attempts, initial_backoff_us, max_backoff_us, multiplier, jitter,
       default_ttl_us, lease_us, priority_step_us, deadline_margin_us, payload_retention_us,
       result_retention_us, evidence_retention_us, stalled AS "stalled: Timestamp", max_in_flight, rate_per_second, rate_burst, max_unfinished,
       etag
FROM queues
WHERE name COLLATE "C" > $1
ORDER BY name COLLATE "C"
LIMIT $2
