-- doctor_budget.sql: no task is charged more attempts than its budget.
-- In the doctor's snapshot. Scans live and ended.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, s.uid, concat(' was charged ', s.charged, ' of ', s.max_attempts) AS what
    FROM (SELECT queue_id, uid, charged, max_attempts FROM live UNION ALL SELECT queue_id, uid, charged, max_attempts FROM ended) s
    WHERE s.charged > s.max_attempts
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
