-- keys_lock.sql: locks ordering keys. Whoever adds, ends or unblocks a task of a key holds its row.
-- In the submit and transition transactions, before shares and live rows. Probes the primary key.
SELECT k.key_id
FROM (SELECT i.key_id FROM unnest($1::bigint[]) AS i (key_id) ORDER BY i.key_id) AS i
CROSS JOIN LATERAL (SELECT k.key_id FROM ordering_keys k WHERE k.key_id = i.key_id FOR NO KEY UPDATE) AS k
