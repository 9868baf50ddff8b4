-- explain_hold.sql: which open repair holds an ordering key below a position, the lowest one.
-- Alone. Walks repairs_that_hold_a_key.
SELECT t.task_id, r.uid
FROM repairs r
JOIN tasks t ON t.queue_id = r.queue_id AND t.uid = r.uid
WHERE r.queue_id = $1 AND r.key_id = $2 AND r.state = 'OPEN' AND r.position < $3
ORDER BY r.position
LIMIT 1
