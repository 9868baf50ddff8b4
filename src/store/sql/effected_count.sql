-- effected_count.sql: how many of these tasks have had their effect, or may have: completed; the running or last attempt began it or
-- reported success; or an attempt's outcome is unknown.
-- Alone. Probes the primary keys of live and ended, task by task whatever statistics say, which is what OFFSET is for.
SELECT count(*) AS "count!"
FROM unnest($2::uuid[]) AS i (uid)
LEFT JOIN LATERAL (SELECT a.unknown_attempts, a.stage FROM live a WHERE a.queue_id = $1 AND a.uid = i.uid OFFSET 0) AS l ON true
LEFT JOIN LATERAL (SELECT b.state, b.unknown_attempts, b.stage, b.evidence FROM ended b
                   WHERE b.queue_id = $1 AND b.uid = i.uid OFFSET 0) AS e ON true
WHERE l.unknown_attempts > 0 OR l.stage = 'EFFECT_BEGUN'
   OR e.state = 'COMPLETED' OR e.unknown_attempts > 0 OR e.stage = 'EFFECT_BEGUN' OR e.evidence ->> 'outcome' = 'SUCCEEDED'
