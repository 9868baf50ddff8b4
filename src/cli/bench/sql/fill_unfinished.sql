-- fill_unfinished.sql: unfinished tasks in a state ($4), all that belongs to them, as the server writes them; empty $5: without a key;
-- absent $7: the seconds after which they start.
-- Alone: a transaction by itself. Probes shares_one_per_fairness_key and ordering_keys_one_per_key.
WITH now AS MATERIALIZED (SELECT app_now() AS at),
new AS MATERIALIZED (
    SELECT i.uid, s.share_id, i.fairness_key, k.key_id, nextval('positions') AS position
    FROM unnest($2::uuid[], $3::text[]) AS i (uid, fairness_key)
    JOIN shares s ON s.queue_id = $1 AND s.fairness_key = i.fairness_key
    LEFT JOIN ordering_keys k ON k.queue_id = $1 AND k.key = $5::text
), new_tasks AS (
    INSERT INTO tasks (queue_id, uid, task_id, kind, content_type, target, event_id, fairness_key, ordering_key, cost, priority, digest)
    SELECT $1, uid, 'fill-' || uid, 'bench', '', '', '', fairness_key, $5::text, 1, 0, uuid_send(uid) || uuid_send(uid) FROM new
), new_live AS (
    INSERT INTO live (queue_id, uid, share_id, key_id, position, state, revision, attempt, charged, max_attempts, releases,
                      unknown_attempts, token, rank, cost, size, wake, deadline, due, accepted, updated)
    SELECT $1, n.uid, n.share_id, n.key_id, n.position, $4, 1, 0, 0, 3, 0, 0, 0,
           (extract(epoch FROM now.at) * 1000000)::bigint, 1, 1200, now.at + make_interval(secs => $7::float8),
           now.at + interval '1 day', least(now.at + interval '1 day', now.at + make_interval(secs => $7::float8)), now.at, now.at
    FROM new n, now
), new_payloads AS (
    INSERT INTO payloads (queue_id, uid, payload) SELECT $1, uid, $6 FROM new
)
INSERT INTO events (position, queue_id, uid, revision, time, kind, state, attempt, token)
SELECT n.position, $1, n.uid, 1, now.at, 'SUBMITTED', $4, 0, 0 FROM new n, now
