-- doctor_one_standing.sql: every task is in exactly one of live and ended.
-- In the doctor's snapshot. Scans all three.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT t.queue_id, t.uid, CASE WHEN l.uid IS NULL THEN ' is in neither' ELSE ' is in both' END AS what
    FROM tasks t LEFT JOIN live l USING (queue_id, uid) LEFT JOIN ended e USING (queue_id, uid)
    WHERE (l.uid IS NULL) = (e.uid IS NULL)
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
