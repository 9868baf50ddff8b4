-- doctor_floor.sql: below a floor nobody waits, and who runs was told, unless a walk is still to come.
-- In the doctor's snapshot. Scans live, task_subjects and subjects.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT l.queue_id, l.uid, concat(' is ', l.state, ' at version ', s.version, ' of ', s.subject_id) AS what
    FROM live l
    JOIN task_subjects s USING (queue_id, uid)
    JOIN subjects f USING (queue_id, subject_id)
    WHERE (f.revoked OR s.version < f.min_version) AND f.walk_due IS NULL AND l.cancel_cause IS NULL
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
