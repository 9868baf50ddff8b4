-- stats_window.sql: what happened in a queue lately: after a position and an instant.
-- In the read transaction of a count. Walks the end of the log, which the engine bounds; probes events_by_task and the key of `tasks`.
SELECT t.fairness_key, t.cost, e.kind, e.state, e.evidence ->> 'error_class' AS error_class,
       (extract(epoch FROM e.time - accepted.time) * 1000000)::bigint AS "since_acceptance_us?",
       (extract(epoch FROM e.time - begun.time) * 1000000)::bigint AS "since_lease_us?"
FROM events e
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.uid = e.uid OFFSET 0) AS t
LEFT JOIN LATERAL (
    SELECT f.time FROM events f WHERE f.queue_id = e.queue_id AND f.uid = e.uid AND f.revision = 1 LIMIT 1
) AS accepted ON e.kind = 'LEASED' AND e.attempt = 1
LEFT JOIN LATERAL (
    SELECT b.time FROM events b
    WHERE b.queue_id = e.queue_id AND b.uid = e.uid AND b.revision < e.revision AND b.kind = 'LEASED'
    ORDER BY b.revision DESC LIMIT 1
) AS begun ON e.kind IN ('RELEASED', 'RETRY_PLANNED', 'ENDED') AND e.attempt > 0
WHERE e.queue_id = $1 AND e.position > $2 AND e.time > $3
