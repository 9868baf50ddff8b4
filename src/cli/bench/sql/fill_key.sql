-- fill_key.sql: an ordering key.
-- Alone, before its tasks. Probes ordering_keys_one_per_key.
INSERT INTO ordering_keys (queue_id, key) VALUES ($1, $2) ON CONFLICT (queue_id, key) DO NOTHING
