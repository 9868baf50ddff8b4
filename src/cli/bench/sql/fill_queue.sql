-- fill_queue.sql: the queue to fill, made if it is not there.
-- Alone, before its first task. Probes queues_one_per_name.
INSERT INTO queues (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING queue_id
