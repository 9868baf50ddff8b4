-- doctor_attempt_ends.sql: an attempt ends once, and all but the running one have ended.
-- In the doctor's snapshot. Scans the log and live.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT b.queue_id, b.uid, concat(' attempt ', b.attempt, ' ended ', count(e.uid), ' times') AS what
    FROM events b
    LEFT JOIN events e ON e.queue_id = b.queue_id AND e.uid = b.uid AND e.attempt = b.attempt
                      AND e.kind IN ('RETRY_PLANNED', 'RELEASED', 'ENDED')
    LEFT JOIN live l ON l.queue_id = b.queue_id AND l.uid = b.uid AND l.state = 'LEASED' AND l.attempt = b.attempt
    WHERE b.kind = 'LEASED'
    GROUP BY b.queue_id, b.uid, b.attempt, l.uid
    HAVING count(e.uid) <> CASE WHEN l.uid IS NULL THEN 1 ELSE 0 END
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
