-- doctor_attempt_numbers.sql: attempts are numbered 1, 2, … and none twice.
-- In the doctor's snapshot. Sorts the leases in the log.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid, concat(' has attempt ', e.attempt, ' at place ', e.place) AS what
    FROM (SELECT queue_id, uid, attempt, row_number() OVER (PARTITION BY queue_id, uid ORDER BY position) AS place
          FROM events WHERE kind = 'LEASED') e
    WHERE e.attempt <> e.place
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
