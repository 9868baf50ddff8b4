-- ceiling_complete.sql: ends tasks under leases that still hold, in one statement; as many rows as ended.
-- Alone: a transaction by itself. Probes the primary key.
WITH now AS MATERIALIZED (SELECT app_now() AS at),
gone AS (
    DELETE FROM live l USING unnest($2::uuid[], $3::bigint[]) AS i (uid, token), now
    WHERE l.queue_id = $1 AND l.uid = i.uid AND l.token = i.token AND l.state = 'LEASED' AND l.lease_expire > now.at
    RETURNING l.*, now.at
), kept AS (
    INSERT INTO ended (queue_id, uid, position, state, reason, revision, attempt, charged, max_attempts, unknown_attempts, token,
                       report, boundary, accepted, ended, deadline, first_lease, stage, worker, evidence)
    SELECT $1, uid, position, 'COMPLETED', '', revision + 1, attempt, charged, max_attempts, 0, token,
           1, 'worker_reported', accepted, at, deadline, first_lease, stage, worker, $4::text::jsonb
    FROM gone
)
INSERT INTO events (queue_id, uid, revision, time, kind, previous_state, state, attempt, token, worker, evidence)
SELECT $1, uid, revision + 1, at, 'ENDED', 'LEASED', 'COMPLETED', attempt, token, worker, $4::text::jsonb FROM gone
