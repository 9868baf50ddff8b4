-- doctor_held_key.sql: nothing passes the open repair of its key where the queue holds it.
-- In the doctor's snapshot. Scans live; probes repairs_that_hold_a_key. Whoever was let go before the queue began to hold is told
-- until it ends.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT l.queue_id, l.uid, concat(' is ', l.state) AS what
    FROM live l
    JOIN queues q USING (queue_id)
    WHERE q.on_repair = 'HOLD' AND l.state <> 'BLOCKED' AND EXISTS (
        SELECT FROM repairs r WHERE r.queue_id = l.queue_id AND r.key_id = l.key_id AND r.state = 'OPEN' AND r.position < l.position)
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
