-- fill_finished.sql: tasks that were completed $4 seconds ago, with their three events, as the server leaves them.
-- Alone: a transaction by itself.
WITH now AS MATERIALIZED (SELECT app_now() - make_interval(secs => $4::float8) AS at),
new AS MATERIALIZED (
    SELECT i.uid, nextval('positions') AS submitted, nextval('positions') AS leased, nextval('positions') AS ended,
           nextval('fencing_tokens') AS token
    FROM unnest($2::uuid[]) AS i (uid)
), new_tasks AS (
    INSERT INTO tasks (queue_id, uid, task_id, kind, content_type, target, event_id, fairness_key, ordering_key, cost, priority, digest)
    SELECT $1, uid, 'fill-' || uid, 'bench', '', '', '', '', '', 1, 0, uuid_send(uid) || uuid_send(uid) FROM new
), new_payloads AS (
    INSERT INTO payloads (queue_id, uid, payload) SELECT $1, uid, $3 FROM new
), new_ended AS (
    INSERT INTO ended (queue_id, uid, position, state, reason, revision, attempt, charged, max_attempts, unknown_attempts, token, report,
                       boundary, accepted, ended, deadline, first_lease, stage, worker, evidence)
    SELECT $1, n.uid, n.submitted, 'COMPLETED', '', 3, 1, 1, 3, 0, n.token, 1,
           'worker_reported', now.at, now.at, now.at + interval '1 day', now.at, 'CLAIMED', 'filler', $5::text::jsonb
    FROM new n, now
)
INSERT INTO events (position, queue_id, uid, revision, time, kind, previous_state, state, attempt, token, worker, evidence)
SELECT n.submitted, $1, n.uid, 1, now.at, 'SUBMITTED', NULL::text, 'READY', 0, 0, NULL::text, NULL::jsonb FROM new n, now
UNION ALL
SELECT n.leased, $1, n.uid, 2, now.at, 'LEASED', 'READY', 'LEASED', 1, n.token, 'filler', NULL::jsonb FROM new n, now
UNION ALL
SELECT n.ended, $1, n.uid, 3, now.at, 'ENDED', 'LEASED', 'COMPLETED', 1, n.token, 'filler', $5::text::jsonb FROM new n, now
