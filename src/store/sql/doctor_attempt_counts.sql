-- doctor_attempt_counts.sql: a task knows its latest attempt and token, what it was charged, and how many attempts are unknown.
-- In the doctor's snapshot. Scans live and ended; probes events_by_task. An attempt that ended unknown with a cancel is not counted as
-- one that a next attempt would have to ask about.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT s.queue_id, s.uid,
           concat(': attempt ', s.attempt, ' charged ', s.charged, ' unknown ', s.unknown_attempts, ' token ', s.token, ', its log says ',
                  e.attempt, ', ', e.charged, ', ', e.unknown, ', ', e.token) AS what
    FROM (SELECT queue_id, uid, state, attempt, charged, unknown_attempts, token FROM live
          UNION ALL SELECT queue_id, uid, state, attempt, charged, unknown_attempts, token FROM ended) s
    JOIN LATERAL (SELECT count(*) FILTER (WHERE x.kind = 'LEASED') AS attempt,
                         count(*) FILTER (WHERE x.kind = 'LEASED')
                             - count(*) FILTER (WHERE x.attempt > 0 AND x.evidence ->> 'charged' = 'false') AS charged,
                         count(*) FILTER (WHERE x.kind IN ('RETRY_PLANNED', 'RELEASED', 'ENDED')
                                            AND x.evidence ->> 'error_class' = 'UNKNOWN') AS unknown,
                         coalesce(max(x.token) FILTER (WHERE x.kind = 'LEASED'), 0) AS token
                  FROM events x WHERE x.queue_id = s.queue_id AND x.uid = s.uid) e ON true
    WHERE (s.attempt, s.charged, s.token) <> (e.attempt, e.charged, e.token)
       OR (s.state <> 'CANCELED' AND s.unknown_attempts <> e.unknown)
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
