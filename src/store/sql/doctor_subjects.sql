-- doctor_subjects.sql: a task hangs on the subjects of its spec, and on no others.
-- In the doctor's snapshot. Scans tasks and task_subjects.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT queue_id, uid,
           CASE WHEN h.here THEN concat(' hangs on ', subject_id, ' ', version) ELSE concat(' lacks ', subject_id, ' ', version) END AS what
    FROM (SELECT t.queue_id, t.uid, s.subject ->> 0 AS subject_id, (s.subject ->> 1)::bigint AS version, true AS here
          FROM tasks t CROSS JOIN LATERAL jsonb_array_elements(t.subjects) AS s (subject)) a
    FULL JOIN (SELECT queue_id, uid, subject_id, version, true AS here FROM task_subjects) h USING (queue_id, uid, subject_id, version)
    WHERE a.here IS NULL OR h.here IS NULL
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
