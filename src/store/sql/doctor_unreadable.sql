-- doctor_unreadable.sql: what is stored of a task has a shape that this version can read.
-- In the doctor's snapshot. Scans tasks and live.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT t.queue_id, t.uid, ' has subjects of a shape that nobody knows' AS what FROM tasks t
    WHERE jsonb_typeof(t.subjects) <> 'array'
       OR t.subjects @? 'strict $[*] ? (@.type() != "array" || @.size() != 2 || @[0].type() != "string" || @[1].type() != "number")'
    UNION ALL
    SELECT t.queue_id, t.uid, ' has labels of a shape that nobody knows' FROM tasks t
    WHERE jsonb_typeof(t.labels) <> 'object' OR t.labels @? 'strict $.* ? (@.type() != "string")'
    UNION ALL
    SELECT t.queue_id, t.uid, ' has options of a shape that nobody knows' FROM tasks t
    WHERE jsonb_typeof(t.options) <> 'object'
       OR t.options @? 'lax $.start ? (@.type() != "object" && @.type() != "null")'
       OR t.options @? 'lax $.end ? (@.type() != "object" && @.type() != "null")'
       OR t.options @? 'lax $.retry ? (@.type() != "object" && @.type() != "null")'
       OR t.options @? 'lax $.lease_duration ? (@.type() != "object" && @.type() != "null")'
       OR t.options @? 'lax $.trace_context ? (@.type() != "string" && @.type() != "null")'
       OR jsonb_typeof(t.options -> 'derived_from') NOT IN ('array', 'null')
       OR jsonb_typeof(t.options -> 'replay_of') NOT IN ('array', 'null')
    UNION ALL
    SELECT t.queue_id, t.uid, ' has a digest of another length' FROM tasks t WHERE octet_length(t.digest) <> 32
    UNION ALL
    SELECT l.queue_id, l.uid, ' has notes of a shape that nobody knows' FROM live l WHERE jsonb_typeof(l.notes) <> 'object'
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
