-- doctor_standing_task.sql: whatever is live or ended is a task.
-- In the doctor's snapshot. Scans all three.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, s.uid, concat(' is ', s.place, ' and no task') AS what
    FROM (SELECT queue_id, uid, 'live' AS place FROM live UNION ALL SELECT queue_id, uid, 'ended' FROM ended) s
    LEFT JOIN tasks t USING (queue_id, uid)
    WHERE t.uid IS NULL
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
