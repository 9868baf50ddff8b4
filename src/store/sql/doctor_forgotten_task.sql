-- doctor_forgotten_task.sql: nothing is left of a task that was forgotten.
-- In the doctor's snapshot. Scans all tables.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, s.uid, concat(' is forgotten, but ', s.left_over, ' is left') AS what
    FROM (SELECT 'a payload' AS left_over, queue_id, uid FROM payloads
          UNION ALL SELECT 'a result', queue_id, uid FROM results
          UNION ALL SELECT 'a subject', queue_id, uid FROM task_subjects
          UNION ALL SELECT 'a receipt', queue_id, uid FROM receipts
          UNION ALL SELECT 'an action', queue_id, uid FROM repair_actions
          UNION ALL SELECT 'an event', queue_id, uid FROM events) s
    LEFT JOIN tasks t USING (queue_id, uid)
    WHERE t.uid IS NULL
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
