-- doctor_after_end.sql: a task that has ended never changes its state again.
-- In the doctor's snapshot. Scans the log.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid, concat(' went from ', e.previous_state, ' to ', e.state) AS what
    FROM events e
    WHERE e.previous_state IN ('COMPLETED', 'SKIPPED', 'CANCELED', 'REPAIR_REQUIRED') AND e.state <> e.previous_state
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
