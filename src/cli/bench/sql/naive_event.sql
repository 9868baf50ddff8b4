-- naive_event.sql: one entry of the log; absent $1: the position is drawn here.
-- Last in each of the naive transactions.
INSERT INTO events (position, queue_id, uid, revision, time, kind, previous_state, state, attempt, token, worker, evidence)
VALUES (coalesce($1::bigint, nextval('positions')), $2, $3, $4, app_now(), $5, $6, $7, $8, $9, $10, $11::text::jsonb)
