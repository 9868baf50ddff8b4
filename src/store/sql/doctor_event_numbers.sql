-- doctor_event_numbers.sql: a task's events are numbered from 1 without holes, in the order of their positions.
-- In the doctor's snapshot. Sorts the log.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid, concat(' has revision ', e.revision, ' at place ', e.place) AS what
    FROM (SELECT queue_id, uid, revision, row_number() OVER (PARTITION BY queue_id, uid ORDER BY position) AS place FROM events) e
    WHERE e.revision <> e.place
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
