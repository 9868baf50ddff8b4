-- doctor_share_asleep.sql: a share that has READY tasks is awake.
-- In the doctor's snapshot. Scans shares; probes live_ready_by_share.
SELECT concat(q.name, ': ', f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, concat('the share ', s.fairness_key, ' sleeps') AS what
    FROM shares s
    WHERE NOT s.ready AND EXISTS (
        SELECT FROM live l WHERE l.queue_id = s.queue_id AND l.share_id = s.share_id AND l.state = 'READY')
) AS f
LEFT JOIN queues q USING (queue_id)
ORDER BY 1
LIMIT $1
