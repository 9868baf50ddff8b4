-- results_by_uid.sql: results that are kept still.
-- Alone. Probes the primary key.
SELECT r.uid, r.result
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (SELECT * FROM results r WHERE r.queue_id = i.queue_id AND r.uid = i.uid OFFSET 0) AS r
