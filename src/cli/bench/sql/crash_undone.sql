-- crash_undone.sql: how many of the tasks whose completion was acknowledged are not completed.
-- Alone. Probes by queue and id, then by uid.
SELECT count(*) FROM unnest($2::text[]) AS i (task_id)
WHERE NOT EXISTS (SELECT FROM tasks t JOIN queues q USING (queue_id) JOIN ended e USING (uid)
                  WHERE q.name = $1 AND t.task_id = i.task_id AND e.state = 'COMPLETED')
