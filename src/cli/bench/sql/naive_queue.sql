-- naive_queue.sql: a queue of the naive subject, and its one share.
-- Alone, before the first task. Probes queues_one_per_name and shares_one_per_fairness_key.
WITH queue AS (
    INSERT INTO queues (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING queue_id
)
INSERT INTO shares (queue_id, fairness_key) SELECT queue_id, '' FROM queue
ON CONFLICT (queue_id, fairness_key) DO UPDATE SET fairness_key = excluded.fairness_key
RETURNING queue_id, share_id
