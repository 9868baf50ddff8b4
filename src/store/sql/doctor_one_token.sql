-- doctor_one_token.sql: no token is handed out twice in a queue.
-- In the doctor's snapshot. Sorts the leases in the log.
SELECT concat(q.name, ': ', f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, concat('token ', e.token, ' was handed out ', count(*), ' times') AS what
    FROM events e
    WHERE e.kind = 'LEASED'
    GROUP BY e.queue_id, e.token
    HAVING count(*) > 1
) AS f
LEFT JOIN queues q USING (queue_id)
ORDER BY 1
LIMIT $1
