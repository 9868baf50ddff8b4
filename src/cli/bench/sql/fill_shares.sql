-- fill_shares.sql: shares that are awake, because READY tasks will lie in them; absent $3: without a cap.
-- Alone, before their tasks. Probes shares_one_per_fairness_key.
INSERT INTO shares (queue_id, fairness_key, max_in_flight, ready)
SELECT $1, f.fairness_key, $3, true FROM unnest($2::text[]) AS f (fairness_key)
ON CONFLICT (queue_id, fairness_key) DO UPDATE SET ready = true
