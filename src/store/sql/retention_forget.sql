-- retention_forget.sql: forgets tasks: everything that was known of them, and their ids; and notes up to where the log has holes now.
-- In the retention transaction, after retention_forgettable locked them. Probes primary keys and events_by_task. By
-- ctid: what is left of a task that has ended and is settled is never updated, only deleted.
WITH gone AS MATERIALIZED (SELECT i.uid FROM unnest($2::uuid[]) AS i (uid)),
no_payload AS (
    DELETE FROM payloads x
    USING (SELECT h.at FROM gone CROSS JOIN LATERAL (SELECT p.ctid AS at FROM payloads p WHERE p.queue_id = $1 AND p.uid = gone.uid OFFSET 0) AS h) AS i
    WHERE x.ctid = i.at
),
no_result AS (
    DELETE FROM results x
    USING (SELECT h.at FROM gone CROSS JOIN LATERAL (SELECT p.ctid AS at FROM results p WHERE p.queue_id = $1 AND p.uid = gone.uid OFFSET 0) AS h) AS i
    WHERE x.ctid = i.at
),
no_subjects AS (
    DELETE FROM task_subjects x
    USING (SELECT h.at
           FROM gone
           CROSS JOIN LATERAL (SELECT t.subjects FROM tasks t WHERE t.uid = gone.uid OFFSET 0) AS t
           CROSS JOIN LATERAL jsonb_array_elements(t.subjects) AS s (subject)
           CROSS JOIN LATERAL (SELECT p.ctid AS at FROM task_subjects p
                               WHERE p.queue_id = $1 AND p.subject_id = s.subject ->> 0 AND p.uid = gone.uid OFFSET 0) AS h) AS i
    WHERE x.ctid = i.at
),
no_receipts AS (
    DELETE FROM receipts x
    USING (SELECT h.at FROM gone CROSS JOIN LATERAL (SELECT p.ctid AS at FROM receipts p WHERE p.queue_id = $1 AND p.uid = gone.uid OFFSET 0) AS h) AS i
    WHERE x.ctid = i.at
),
no_actions AS (
    DELETE FROM repair_actions x
    USING (SELECT h.at FROM gone CROSS JOIN LATERAL (SELECT p.ctid AS at FROM repair_actions p WHERE p.queue_id = $1 AND p.uid = gone.uid OFFSET 0) AS h) AS i
    WHERE x.ctid = i.at
),
no_repair AS (
    DELETE FROM repairs x
    USING (SELECT h.at FROM gone CROSS JOIN LATERAL (SELECT p.ctid AS at FROM repairs p WHERE p.queue_id = $1 AND p.uid = gone.uid OFFSET 0) AS h) AS i
    WHERE x.ctid = i.at
),
no_end AS (
    DELETE FROM ended x
    USING (SELECT h.at FROM gone CROSS JOIN LATERAL (SELECT p.ctid AS at FROM ended p WHERE p.queue_id = $1 AND p.uid = gone.uid OFFSET 0) AS h) AS i
    WHERE x.ctid = i.at
),
no_events AS (
    DELETE FROM events x
    WHERE x.position = ANY (ARRAY(
        SELECT e.position FROM gone CROSS JOIN LATERAL (SELECT e.position FROM events e WHERE e.queue_id = $1 AND e.uid = gone.uid OFFSET 0) AS e))
    RETURNING x.position
),
no_task AS (DELETE FROM tasks x WHERE x.uid = ANY ($2))
INSERT INTO forgotten (queue_id, position)
SELECT $1, max(e.position) FROM no_events e HAVING count(*) > 0
ON CONFLICT (queue_id) DO UPDATE SET position = greatest(forgotten.position, excluded.position)
