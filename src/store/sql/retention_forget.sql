-- retention_forget.sql: forgets tasks: everything that was known of them, and their ids; and notes up to where the log has holes now.
-- In the retention transaction, after retention_forgettable locked them. Probes primary keys and events_by_task.
WITH gone AS MATERIALIZED (SELECT i.uid FROM unnest($2::uuid[]) AS i (uid)),
no_payload AS (DELETE FROM payloads x USING gone WHERE x.queue_id = $1 AND x.uid = gone.uid),
no_result AS (DELETE FROM results x USING gone WHERE x.queue_id = $1 AND x.uid = gone.uid),
no_subjects AS (
    DELETE FROM task_subjects x
    USING gone JOIN tasks t ON t.queue_id = $1 AND t.uid = gone.uid CROSS JOIN LATERAL jsonb_array_elements(t.subjects) AS s (subject)
    WHERE x.queue_id = $1 AND x.subject_id = s.subject ->> 0 AND x.uid = gone.uid
),
no_receipts AS (DELETE FROM receipts x USING gone WHERE x.queue_id = $1 AND x.uid = gone.uid),
no_actions AS (DELETE FROM repair_actions x USING gone WHERE x.queue_id = $1 AND x.uid = gone.uid),
no_repair AS (DELETE FROM repairs x USING gone WHERE x.queue_id = $1 AND x.uid = gone.uid),
no_end AS (DELETE FROM ended x USING gone WHERE x.queue_id = $1 AND x.uid = gone.uid),
no_events AS (DELETE FROM events x USING gone WHERE x.queue_id = $1 AND x.uid = gone.uid RETURNING x.position),
no_task AS (DELETE FROM tasks x USING gone WHERE x.queue_id = $1 AND x.uid = gone.uid)
INSERT INTO forgotten (queue_id, position)
SELECT $1, max(e.position) FROM no_events e HAVING count(*) > 0
ON CONFLICT (queue_id) DO UPDATE SET position = greatest(forgotten.position, excluded.position)
