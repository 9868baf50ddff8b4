-- dispatch_make.sql: makes a queue's virtual time when shares are compared for the first time.
-- In the claim transaction. Probes the primary key.
INSERT INTO dispatch (queue_id) VALUES ($1) ON CONFLICT (queue_id) DO NOTHING
