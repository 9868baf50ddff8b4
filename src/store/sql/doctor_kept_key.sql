-- doctor_kept_key.sql: the key of a task that has ended is kept as long as the task, and is that of its spec.
-- In the doctor's snapshot. Scans ended and tasks.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid, concat(' ended in the key ', coalesce(k.key, '?'), ', its spec says ', t.ordering_key) AS what
    FROM ended e
    JOIN tasks t USING (queue_id, uid)
    LEFT JOIN ordering_keys k ON k.queue_id = e.queue_id AND k.key_id = e.key_id
    WHERE coalesce(k.key, '') <> t.ordering_key
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
