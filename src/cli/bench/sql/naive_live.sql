-- naive_live.sql: what changes of a new task, READY at once.
-- Second in the naive Submit.
INSERT INTO live (queue_id, uid, share_id, position, state, revision, attempt, charged, max_attempts, releases, unknown_attempts,
                  token, rank, cost, size, deadline, due, accepted, updated)
SELECT $1, $2, $3, nextval('positions'), 'READY', 1, 0, 0, 3, 0, 0,
       0, (extract(epoch FROM now.at) * 1000000)::bigint, 1, 1200, now.at + interval '1 day', now.at + interval '1 day', now.at, now.at
FROM (SELECT app_now() AS at OFFSET 0) AS now
RETURNING position
