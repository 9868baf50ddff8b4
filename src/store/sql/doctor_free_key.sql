-- doctor_free_key.sql: no key is free while tasks are BLOCKED behind it.
-- In the doctor's snapshot. Scans ordering_keys; probes live_by_key and repairs_that_hold_a_key. Where the queue has just stopped to
-- hold keys for repairs, the loop that lets them go may still be on its way.
SELECT concat(q.name, ': ', f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT k.queue_id, concat('the key ', k.key, ' is free, and ', b.blocked, ' are blocked behind it') AS what
    FROM ordering_keys k
    JOIN queues q USING (queue_id)
    JOIN LATERAL (SELECT min(l.position) AS first, bool_and(l.state = 'BLOCKED') AS free, count(*) AS blocked
                  FROM live l WHERE l.queue_id = k.queue_id AND l.key_id = k.key_id) b ON b.free
    WHERE NOT (q.on_repair = 'HOLD' AND EXISTS (
        SELECT FROM repairs r WHERE r.queue_id = k.queue_id AND r.key_id = k.key_id AND r.state = 'OPEN' AND r.position < b.first))
) AS f
LEFT JOIN queues q USING (queue_id)
ORDER BY 1
LIMIT $1
