-- naive_task.sql: takes a free task id; no row if it was taken.
-- First in the naive Submit. Probes tasks_one_per_id.
INSERT INTO tasks (queue_id, uid, task_id, kind, content_type, target, event_id, fairness_key, ordering_key, cost, priority, digest)
VALUES ($1, $2, $3, 'bench', '', '', '', '', '', 1, 0, $4)
ON CONFLICT (queue_id, task_id) DO NOTHING
