-- keys_find.sql: the numbers of ordering keys; unlocked, for they never change.
-- In the submit and transition transactions, before keys_lock. Probes ordering_keys_one_per_key.
SELECT k.queue_id, k.key_id, k.key
FROM unnest($1::int[], $2::text[]) AS i (queue_id, key)
CROSS JOIN LATERAL (SELECT * FROM ordering_keys k WHERE k.queue_id = i.queue_id AND k.key = i.key OFFSET 0) AS k
