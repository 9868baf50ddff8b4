-- key_places.sql: who stands where in some keys: the head, the lowest $3 BLOCKED ones, and the lowest open repair.
-- In a later statement than keys_lock: that statement's own snapshot is older than its wait. Walks live_by_key; probes live_one_head_per_key
-- and repairs_by_key.
SELECT i.queue_id AS "queue_id!", i.key_id AS "key_id!", p.uid AS "uid?", p.position AS "position?", p.blocked AS "blocked?",
       (SELECT min(r.position) FROM repairs r
        WHERE r.key_id = i.key_id AND r.state = 'OPEN') AS "hold?"
FROM unnest($1::int[], $2::bigint[]) AS i (queue_id, key_id)
LEFT JOIN LATERAL (
    (SELECT l.uid, l.position, false AS blocked FROM live l
     WHERE l.key_id = i.key_id AND l.state <> 'BLOCKED')
    UNION ALL
    (SELECT l.uid, l.position, true FROM live l
     WHERE l.key_id = i.key_id AND l.state = 'BLOCKED'
     ORDER BY l.position LIMIT $3)
) AS p ON true
