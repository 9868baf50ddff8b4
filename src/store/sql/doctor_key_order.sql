-- doctor_key_order.sql: a key's head was accepted before those that are BLOCKED behind it.
-- In the doctor's snapshot. Scans live; probes live_by_key. A replay takes its old place: whoever was let go before that may stand in
-- front of it.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT l.queue_id, l.uid, concat(' is ', l.state, ', accepted at ', l.position) AS what
    FROM live l
    WHERE l.key_id IS NOT NULL AND l.state <> 'BLOCKED' AND EXISTS (
        SELECT FROM live b JOIN tasks n ON n.queue_id = b.queue_id AND n.uid = b.uid
        WHERE b.queue_id = l.queue_id AND b.key_id = l.key_id AND b.state = 'BLOCKED' AND b.position < l.position
          AND n.options ->> 'replay_of' IS NULL)
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
