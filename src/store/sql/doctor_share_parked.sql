-- doctor_share_parked.sql: no share is parked that has a place and a rate.
-- In the doctor's snapshot. Scans shares; probes live_leased_by_share.
SELECT concat(q.name, ': ', f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, concat('the share ', s.fairness_key, ' is parked') AS what
    FROM shares s
    WHERE s.parked AND s.wake_at IS NULL AND s.rate_per_second IS DISTINCT FROM 0
      AND (s.max_in_flight IS NULL OR s.max_in_flight > (
           SELECT count(*) FROM live l WHERE l.queue_id = s.queue_id AND l.share_id = s.share_id AND l.state = 'LEASED'))
) AS f
LEFT JOIN queues q USING (queue_id)
ORDER BY 1
LIMIT $1
