-- keys_idle_lock.sql: locks ordering keys to be removed; passes over those that somebody holds.
-- Before keys_remove, in its transaction. Sorted; probes the primary key.
SELECT k.key_id
FROM (SELECT i.key_id FROM unnest($1::bigint[]) AS i (key_id) ORDER BY i.key_id) AS i
CROSS JOIN LATERAL (SELECT * FROM ordering_keys k WHERE k.key_id = i.key_id FOR UPDATE SKIP LOCKED) AS k
