-- queue_gate.sql: takes a queue's gate alone, so that no claim straddles a change of its policy; no row if there is no such queue.
-- In PutQueue's transaction, before anything of the queue is read to be changed. Probes queues_one_per_name.
SELECT pg_advisory_xact_lock($1, q.queue_id) AS "locked!: ()" FROM queues q WHERE q.name = $2
