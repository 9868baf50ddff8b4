-- doctor_event_times.sql: time does not run backwards along a task.
-- In the doctor's snapshot. Sorts the log.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid, concat(' at revision ', e.revision) AS what
    FROM (SELECT queue_id, uid, revision, time, lag(time) OVER (PARTITION BY queue_id, uid ORDER BY revision) AS before FROM events) e
    WHERE e.time < e.before
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
