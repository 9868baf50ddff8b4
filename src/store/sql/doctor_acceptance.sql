-- doctor_acceptance.sql: the order of acceptance is the position of the first event.
-- In the doctor's snapshot. Scans live and ended; probes events_by_task. A replay in a key may take the place of its original, which
-- came before it.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, s.uid, concat(' stands at ', s.position, ', its first event at ', e.position) AS what
    FROM (SELECT queue_id, uid, position FROM live UNION ALL SELECT queue_id, uid, position FROM ended) s
    JOIN tasks t USING (queue_id, uid)
    LEFT JOIN repairs r ON r.queue_id = s.queue_id AND r.replayed_by = s.uid
    LEFT JOIN events e ON e.queue_id = s.queue_id AND e.uid = s.uid AND e.revision = 1
    WHERE e.position IS NULL
       OR (e.position <> s.position AND (s.position IS DISTINCT FROM r.position OR e.position < s.position OR t.ordering_key = ''))
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
