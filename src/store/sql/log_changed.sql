-- log_changed.sql: which of these tasks have events after a position, and where the last one stands.
-- In the read transaction of a snapshot's page. Walks events_by_task backwards for each task.
SELECT i.uid AS "uid!", e.position
FROM unnest($2::uuid[]) AS i (uid)
CROSS JOIN LATERAL (
    SELECT t.position FROM events t WHERE t.queue_id = $1 AND t.uid = i.uid ORDER BY t.revision DESC LIMIT 1
) AS e
WHERE e.position > $3
