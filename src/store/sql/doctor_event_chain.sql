-- doctor_event_chain.sql: each event begins in the state in which the one before it ended.
-- In the doctor's snapshot. Sorts the log.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT e.queue_id, e.uid,
           concat(' at revision ', e.revision, ': ', coalesce(e.previous_state, '-'), ' after ', coalesce(e.before, '-')) AS what
    FROM (SELECT queue_id, uid, revision, previous_state, lag(state) OVER (PARTITION BY queue_id, uid ORDER BY revision) AS before
          FROM events) e
    WHERE e.previous_state IS DISTINCT FROM e.before
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
