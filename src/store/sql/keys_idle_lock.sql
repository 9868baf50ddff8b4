-- keys_idle_lock.sql: locks ordering keys to be removed; passes over those that somebody holds.
-- Before keys_remove, in its transaction. Sorted; probes the primary key.
SELECT k.queue_id, k.key_id
FROM unnest($1::int[], $2::bigint[]) AS i (queue_id, key_id)
JOIN ordering_keys k ON k.queue_id = i.queue_id AND k.key_id = i.key_id
ORDER BY k.queue_id, k.key_id
FOR UPDATE OF k SKIP LOCKED
