-- specs_by_id.sql: finds tasks by the names that their callers gave them.
-- In any transaction or none. Probes tasks_one_per_id.
SELECT t.queue_id, t.uid, t.task_id, t.kind, t.content_type, t.target, t.event_id, t.fairness_key, t.ordering_key, t.cost,
       t.priority, t.subjects AS "subjects: Json<Vec<(String, i64)>>",
       t.labels AS "labels: Json<std::collections::BTreeMap<String, String>>", t.options AS "options: Json<Options>",
       t.digest
FROM unnest($1::int[], $2::text[]) AS i (queue_id, task_id)
CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.queue_id = i.queue_id AND t.task_id = i.task_id OFFSET 0) AS t
