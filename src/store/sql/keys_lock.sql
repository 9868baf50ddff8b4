-- keys_lock.sql: locks ordering keys. Whoever adds, ends or unblocks a task of a key holds its row.
-- In the submit and transition transactions, before shares and live rows. Probes the primary key.
SELECT k.key_id
FROM unnest($1::int[], $2::bigint[]) AS i (queue_id, key_id)
JOIN ordering_keys k ON k.queue_id = i.queue_id AND k.key_id = i.key_id
ORDER BY k.queue_id, k.key_id
FOR NO KEY UPDATE OF k
