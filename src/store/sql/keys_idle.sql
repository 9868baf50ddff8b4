-- keys_idle.sql: a page of ordering keys, and whether each has no task left, neither unfinished nor remembered.
-- Alone, unlocked: keys_remove looks again. Walks the primary key; probes live_by_key, ended_by_key and repairs_by_key.
SELECT k.key_id,
       (NOT EXISTS (SELECT FROM live l WHERE l.key_id = k.key_id OFFSET 0)
        AND NOT EXISTS (SELECT FROM ended e WHERE e.key_id = k.key_id OFFSET 0)
        AND NOT EXISTS (SELECT FROM repairs r WHERE r.key_id = k.key_id AND r.state = 'OPEN' OFFSET 0)) AS "idle!"
FROM ordering_keys k
WHERE k.key_id > $1
ORDER BY k.key_id
LIMIT $2
