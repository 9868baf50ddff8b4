-- stats_repairs.sql: counts a queue's open repairs by share and cause; at most $2 of them.
-- In the read transaction of a count. Walks repairs_open_by_age and probes the primary key of `tasks`.
SELECT t.fairness_key, o.cause, count(*) AS "count!"
FROM (SELECT r.uid, r.cause FROM repairs r WHERE r.queue_id = $1 AND r.state = 'OPEN' LIMIT $2) AS o
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.uid = o.uid OFFSET 0) AS t
GROUP BY t.fairness_key, o.cause
