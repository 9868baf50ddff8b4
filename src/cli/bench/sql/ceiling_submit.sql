-- ceiling_submit.sql: READY tasks, all that belongs to them, in one statement.
-- Alone: a transaction by itself.
WITH now AS MATERIALIZED (SELECT app_now() AS at),
new AS MATERIALIZED (
    SELECT i.uid, i.task_id, i.digest, i.payload, nextval('positions') AS position
    FROM unnest($3::uuid[], $4::text[], $5::bytea[], $6::bytea[]) AS i (uid, task_id, digest, payload)
), new_tasks AS (
    INSERT INTO tasks (queue_id, uid, task_id, kind, content_type, target, event_id, fairness_key, ordering_key, cost, priority, digest)
    SELECT $1, uid, task_id, 'bench', '', '', '', '', '', 1, 0, digest FROM new
), new_live AS (
    INSERT INTO live (queue_id, uid, share_id, position, state, revision, attempt, charged, max_attempts, releases, unknown_attempts,
                      token, rank, cost, size, deadline, due, accepted, updated)
    SELECT $1, uid, $2, position, 'READY', 1, 0, 0, 3, 0, 0,
           0, (extract(epoch FROM at) * 1000000)::bigint, 1, 1200, at + interval '1 day', at + interval '1 day', at, at
    FROM new, now
), new_payloads AS (
    INSERT INTO payloads (queue_id, uid, payload) SELECT $1, uid, payload FROM new
)
INSERT INTO events (position, queue_id, uid, revision, time, kind, state, attempt, token)
SELECT position, $1, uid, 1, at, 'SUBMITTED', 'READY', 0, 0 FROM new, now
