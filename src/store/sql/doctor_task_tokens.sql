-- doctor_task_tokens.sql: tokens rise along a task.
-- In the doctor's snapshot. Sorts the leases in the log.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid, concat(' has token ', e.token, ' after ', e.before) AS what
    FROM (SELECT queue_id, uid, token, lag(token) OVER (PARTITION BY queue_id, uid ORDER BY position) AS before
          FROM events WHERE kind = 'LEASED') e
    WHERE e.token <= e.before
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
