-- doctor_repair.sql: what needs repair has a repair with its cause, key and place, and nothing else has one.
-- In the doctor's snapshot. Scans repairs and ended.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT queue_id, uid,
           CASE WHEN e.place IS NULL THEN ' has a repair and needs none' WHEN r.position IS NULL THEN ' has no repair'
                ELSE ' has a repair with another cause, key or place' END AS what
    FROM (SELECT queue_id, uid, position AS place, cause, key_id FROM ended WHERE state = 'REPAIR_REQUIRED') e
    FULL JOIN repairs r USING (queue_id, uid)
    WHERE (e.place, e.cause, coalesce(e.key_id, 0)) IS DISTINCT FROM (r.position, r.cause, coalesce(r.key_id, 0))
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
