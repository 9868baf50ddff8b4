-- doctor_numbers.sql: no number was used that its sequence has not handed out, and nothing is forgotten beyond the log's end.
-- In the doctor's snapshot. Scans live and ended; reads the log's end. After a failover or a restored backup the sequences may be
-- behind.
SELECT concat(q.name, ': ', f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, concat('token ', s.token, ' is above the latest, ', n.last_value) AS what
    FROM (SELECT queue_id, max(token) AS token FROM (SELECT queue_id, token FROM live UNION ALL SELECT queue_id, token FROM ended) a
          GROUP BY queue_id) s
    JOIN fencing_tokens n ON s.token > n.last_value
    UNION ALL
    SELECT e.queue_id, concat('event ', e.position, ' is above the latest, ', p.last_value)
    FROM positions p JOIN events e ON e.position > p.last_value
    UNION ALL
    SELECT f.queue_id, concat('the log is said to be forgotten up to ', f.position, ', the latest is ', p.last_value)
    FROM positions p JOIN forgotten f ON f.position > p.last_value
) AS f
LEFT JOIN queues q USING (queue_id)
ORDER BY 1
LIMIT $1
