-- queue_create.sql: makes a queue with the defaults; nothing if it is there.
-- Alone, at the first Submit or Claim that names it; or in PutQueue's transaction. Probes queues_one_per_name.
INSERT INTO queues (name) VALUES ($1) ON CONFLICT (name) DO NOTHING
