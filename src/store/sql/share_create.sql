-- share_create.sql: makes a share with the defaults, before its first task; nothing if it is there.
-- In PutShare's transaction, under the queue's gate. Probes shares_one_per_fairness_key.
INSERT INTO shares (queue_id, fairness_key) VALUES ($1, $2) ON CONFLICT (queue_id, fairness_key) DO NOTHING
