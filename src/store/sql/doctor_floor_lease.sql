-- doctor_floor_lease.sql: nothing was leased below a floor after it had risen.
-- In the doctor's snapshot. Scans the log, task_subjects and subjects.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid, concat(' was leased at version ', s.version, ' of ', s.subject_id) AS what
    FROM events e
    JOIN task_subjects s USING (queue_id, uid)
    JOIN subjects f USING (queue_id, subject_id)
    WHERE e.kind = 'LEASED' AND (f.revoked OR s.version < f.min_version) AND e.time > f.updated
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
