-- crash_unleased.sql: how many of the leases that were told are not in the log.
-- Alone. Probes by queue and id, then the task's events.
SELECT count(*) FROM unnest($2::text[]) AS i (lease)
CROSS JOIN LATERAL (SELECT split_part(i.lease, ' ', 1) AS task_id, split_part(i.lease, ' ', 2)::bigint AS token) AS l
WHERE NOT EXISTS (SELECT FROM tasks t JOIN queues q USING (queue_id) JOIN events e USING (queue_id, uid)
                  WHERE q.name = $1 AND t.task_id = l.task_id AND e.kind = 'LEASED' AND e.token = l.token)
