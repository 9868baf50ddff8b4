-- crash_lost.sql: how many of the tasks that were acknowledged are not there.
-- Alone. Probes by queue and id.
SELECT count(*) FROM unnest($2::text[]) AS i (task_id)
WHERE NOT EXISTS (SELECT FROM tasks t JOIN queues q USING (queue_id) WHERE q.name = $1 AND t.task_id = i.task_id)
