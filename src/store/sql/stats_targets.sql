-- stats_targets.sql: counts unfinished tasks by share and target, among at most $2 of the queue, the oldest.
-- In the read transaction of a count. Walks the primary key of `live` and probes that of `tasks`.
SELECT o.share_id, t.target, count(*) AS "count!"
FROM (SELECT l.share_id, l.uid FROM live l WHERE l.queue_id = $1 ORDER BY l.uid LIMIT $2) AS o
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.uid = o.uid OFFSET 0) AS t
GROUP BY o.share_id, t.target
