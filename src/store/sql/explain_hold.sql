-- explain_hold.sql: which open repair holds an ordering key below a position, the lowest one.
-- Alone. Walks repairs_by_key.
SELECT t.task_id, r.uid
FROM (SELECT r.uid FROM repairs r WHERE r.key_id = $1 AND r.state = 'OPEN' AND r.position < $2 ORDER BY r.position LIMIT 1) AS r
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.uid = r.uid OFFSET 0) AS t
