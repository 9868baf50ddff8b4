-- doctor_share_and_key.sql: the share, the key and the cost of an unfinished task are there, and those of its spec.
-- In the doctor's snapshot. Scans live and tasks.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT l.queue_id, l.uid,
           concat(' stands in the share ', coalesce(s.fairness_key, '?'), ' and the key ', coalesce(k.key, '-'), ' and costs ', l.cost) AS what
    FROM live l
    JOIN tasks t USING (queue_id, uid)
    LEFT JOIN shares s USING (queue_id, share_id)
    LEFT JOIN ordering_keys k ON k.queue_id = l.queue_id AND k.key_id = l.key_id
    WHERE s.fairness_key IS DISTINCT FROM t.fairness_key OR coalesce(k.key, '') <> t.ordering_key OR l.cost <> t.cost
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
