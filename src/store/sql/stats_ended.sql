-- stats_ended.sql: counts a queue's finished tasks: those that ended otherwise than COMPLETED by state, and all of them as ''. No count
-- goes beyond $2.
-- In the read transaction of a count. Walks ended_otherwise_by_state and the primary key, both without the rows.
SELECT o.state AS "state!", count(*) AS "count!"
FROM (SELECT e.state FROM ended e WHERE e.queue_id = $1 AND e.state <> 'COMPLETED' LIMIT $2) AS o
GROUP BY o.state
UNION ALL
SELECT '', count(*) FROM (SELECT e.uid FROM ended e WHERE e.queue_id = $1 LIMIT $2) AS a
