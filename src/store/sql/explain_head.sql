-- explain_head.sql: who keeps an ordering key: the unfinished task outside BLOCKED.
-- Alone. Probes live_one_head_per_key and the primary key of tasks; walks live_by_key.
SELECT t.task_id, l.uid, l.state,
       (SELECT count(*) FROM live b WHERE b.key_id = $1 AND b.position < $2 AND CASE b.state WHEN 'BLOCKED' THEN true END) AS "ahead!"
FROM (SELECT * FROM live l WHERE l.key_id = $1 AND l.state <> 'BLOCKED' OFFSET 0) AS l
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.uid = l.uid OFFSET 0) AS t
