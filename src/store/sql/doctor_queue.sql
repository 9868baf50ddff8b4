-- doctor_queue.sql: whatever belongs to a queue belongs to one that is there.
-- In the doctor's snapshot. Scans all tables that name queues.
SELECT concat(count(*), ' ', f.place, ' of a queue ', f.queue_id, ' that is not there') AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT 'tasks' AS place, queue_id FROM tasks
    UNION ALL SELECT 'shares', queue_id FROM shares
    UNION ALL SELECT 'ordering keys', queue_id FROM ordering_keys
    UNION ALL SELECT 'subjects', queue_id FROM subjects
    UNION ALL SELECT 'rooms', queue_id FROM rooms
    UNION ALL SELECT 'a virtual time', queue_id FROM dispatch
    UNION ALL SELECT 'marks of retention', queue_id FROM retention_marks
    UNION ALL SELECT 'a forgotten log', queue_id FROM forgotten
) AS f
LEFT JOIN queues q USING (queue_id)
WHERE q.queue_id IS NULL
GROUP BY f.place, f.queue_id
ORDER BY 1
LIMIT $1
