-- keys_held.sql: a page of keys with open repairs, and of each the lowest BLOCKED task if nothing but the repair is in front of it
-- although its queue says CONTINUE.
-- Alone, unlocked: the transition batch locks the key and looks again. Walks repairs_that_hold_a_key; probes live_by_key.
SELECT r.queue_id AS "queue_id!", r.key_id AS "key_id!", b.uid AS "stranded?"
FROM (SELECT DISTINCT r.queue_id, r.key_id
      FROM repairs r
      WHERE r.state = 'OPEN' AND r.key_id IS NOT NULL AND (r.queue_id, r.key_id) > ($1::int, $2::bigint) AND r.queue_id <= $3
      ORDER BY r.queue_id, r.key_id
      LIMIT $4) AS r
JOIN queues q ON q.queue_id = r.queue_id
LEFT JOIN LATERAL (
    SELECT l.uid FROM live l
    WHERE q.on_repair = 'CONTINUE' AND l.key_id = r.key_id AND l.state = 'BLOCKED'
      AND NOT EXISTS (SELECT FROM live h WHERE h.key_id = r.key_id AND h.state <> 'BLOCKED')
    ORDER BY l.position LIMIT 1
) AS b ON true
ORDER BY r.queue_id, r.key_id
