-- doctor_key_tokens.sql: tokens rise along an ordering key.
-- In the doctor's snapshot. Sorts the leases in the log.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid, concat(' has token ', e.token, ' after ', e.before, ' in the key ', e.ordering_key) AS what
    FROM (SELECT t.queue_id, t.uid, t.ordering_key, e.token,
                 lag(e.token) OVER (PARTITION BY t.queue_id, t.ordering_key ORDER BY e.position) AS before
          FROM events e JOIN tasks t USING (queue_id, uid) WHERE e.kind = 'LEASED' AND t.ordering_key <> '') e
    WHERE e.token <= e.before
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
