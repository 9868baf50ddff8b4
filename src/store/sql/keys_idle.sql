-- keys_idle.sql: a page of ordering keys, and whether each has no task left, neither unfinished nor remembered.
-- Alone, unlocked: keys_remove looks again. Walks the primary key; probes live_by_key, ended_by_key and repairs_that_hold_a_key.
SELECT k.queue_id, k.key_id,
       (NOT EXISTS (SELECT FROM live l WHERE l.queue_id = k.queue_id AND l.key_id = k.key_id)
        AND NOT EXISTS (SELECT FROM ended e WHERE e.queue_id = k.queue_id AND e.key_id = k.key_id)
        AND NOT EXISTS (SELECT FROM repairs r WHERE r.queue_id = k.queue_id AND r.key_id = k.key_id AND r.state = 'OPEN')) AS "idle!"
FROM ordering_keys k
WHERE (k.queue_id, k.key_id) > ($1::int, $2::bigint)
ORDER BY k.queue_id, k.key_id
LIMIT $3
