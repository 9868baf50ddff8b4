-- specs_in_full.sql: what was asked, which never changes, with the payloads that are kept still.
-- In the claim transaction. Probes the primary keys.
SELECT t.queue_id, t.uid, t.task_id, t.kind, t.content_type, t.target, t.event_id, t.fairness_key, t.ordering_key, t.cost,
       t.priority, t.subjects AS "subjects: Json<Vec<(String, i64)>>",
       t.labels AS "labels: Json<std::collections::BTreeMap<String, String>>", t.options AS "options: Json<Options>",
       t.digest, (SELECT p.payload FROM payloads p WHERE p.queue_id = t.queue_id AND p.uid = t.uid) AS payload
FROM unnest($2::uuid[]) AS i (uid)
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.uid = i.uid OFFSET 0) AS t
WHERE t.queue_id = $1
