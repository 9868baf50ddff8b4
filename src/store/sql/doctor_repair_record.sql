-- doctor_repair_record.sql: what was done with a repair is on its record.
-- In the doctor's snapshot. Scans repairs and repair_actions.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT r.queue_id, r.uid, concat(' is ', r.state, ', its record says so ', count(a.uid), ' times') AS what
    FROM repairs r
    LEFT JOIN repair_actions a ON a.queue_id = r.queue_id AND a.uid = r.uid AND a.action = r.state
    WHERE r.state <> 'OPEN'
    GROUP BY r.queue_id, r.uid, r.state
    HAVING count(a.uid) <> 1
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
