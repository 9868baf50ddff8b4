-- naive_ended.sql: the row of a finished task.
-- Third in the naive Complete.
INSERT INTO ended (queue_id, uid, position, state, reason, revision, attempt, charged, max_attempts, unknown_attempts, token, report,
                   boundary, accepted, ended, deadline, first_lease, stage, worker, evidence)
VALUES ($1, $2, $3, 'COMPLETED', '', $4, $5, $6, $7, 0, $8, 1, 'worker_reported', $9, app_now(), $10, $11, 'CLAIMED', $12, $13::text::jsonb)
