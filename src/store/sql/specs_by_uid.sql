-- specs_by_uid.sql: reads what was asked, which never changes.
-- In any transaction or none. Probes the primary key.
SELECT t.queue_id, t.uid, t.task_id, t.kind, t.content_type, t.target, t.event_id, t.fairness_key, t.ordering_key, t.cost,
       t.priority, t.subjects AS "subjects: Json<Vec<(String, i64)>>",
       t.labels AS "labels: Json<std::collections::BTreeMap<String, String>>", t.options AS "options: Json<Options>",
       t.digest
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.uid = i.uid OFFSET 0) AS t
WHERE t.queue_id = i.queue_id
