-- naive_payload.sql: a new task's payload.
-- Third in the naive Submit.
INSERT INTO payloads (queue_id, uid, payload) VALUES ($1, $2, $3)
