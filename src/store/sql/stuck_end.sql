-- stuck_end.sql: ends a task that can't be moved as REPAIR_REQUIRED, from those columns alone that the schema vouches for, and opens its
-- repair. An attempt that ran ends with it: nobody knows how.
-- In a transaction of its own, after stuck_lock. Probes the primary key.
WITH gone AS (
    DELETE FROM live l WHERE l.queue_id = $1 AND l.uid = $2
    RETURNING l.queue_id, l.uid, l.key_id, l.position, l.state, l.revision + 1 AS revision, l.attempt, l.charged, l.max_attempts,
              l.unknown_attempts + (l.state = 'LEASED')::int AS unknown_attempts, l.token, l.report, l.accepted, l.deadline, l.first_lease,
              l.stage, l.worker, l.effect_ref
), opened AS (
    INSERT INTO repairs (queue_id, uid, key_id, position, cause, opened)
    SELECT g.queue_id, g.uid, g.key_id, g.position, 'STUCK', $3::timestamptz FROM gone g
), kept AS (
    INSERT INTO ended (queue_id, uid, key_id, position, state, cause, reason, revision, attempt, charged, max_attempts, unknown_attempts,
                       token, report, boundary, accepted, ended, deadline, first_lease, stage, worker)
    SELECT g.queue_id, g.uid, g.key_id, g.position, 'REPAIR_REQUIRED', 'STUCK', $4, g.revision, g.attempt, g.charged, g.max_attempts,
           g.unknown_attempts, g.token, g.report, '', g.accepted, $3, g.deadline, g.first_lease, g.stage, g.worker
    FROM gone g
)
INSERT INTO events (queue_id, uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence)
SELECT g.queue_id, g.uid, g.revision, $3, 'ENDED', g.state, 'REPAIR_REQUIRED', 'STUCK',
       CASE g.state WHEN 'LEASED' THEN g.attempt ELSE 0 END, g.token, g.worker,
       CASE g.state WHEN 'LEASED' THEN jsonb_strip_nulls(jsonb_build_object('outcome', 'EXPIRED', 'error_class', 'UNKNOWN', 'code', 'STUCK',
                                                                          'stage', g.stage, 'effect_ref', g.effect_ref, 'charged', true))
       END
FROM gone g
