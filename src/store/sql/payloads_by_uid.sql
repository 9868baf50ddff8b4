-- payloads_by_uid.sql: payloads that are kept still.
-- In any transaction or none. Probes the primary key.
SELECT p.uid, p.payload
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (SELECT * FROM payloads p WHERE p.queue_id = i.queue_id AND p.uid = i.uid OFFSET 0) AS p
