-- doctor_last_event.sql: the last event of a task says its present state and revision.
-- In the doctor's snapshot. Scans live and ended; probes events_by_task.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, s.uid,
           concat(' is ', s.state, ' at ', s.revision, ', its log says ', coalesce(e.state, 'nothing'), ' at ', e.revision) AS what
    FROM (SELECT queue_id, uid, state, revision, true AS live FROM live UNION ALL SELECT queue_id, uid, state, revision, false FROM ended) s
    LEFT JOIN LATERAL (SELECT x.state, x.revision FROM events x WHERE x.queue_id = s.queue_id AND x.uid = s.uid
                       ORDER BY x.revision DESC LIMIT 1) e ON true
    WHERE e.state IS DISTINCT FROM s.state OR e.revision < s.revision OR (s.live AND e.revision <> s.revision)
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
