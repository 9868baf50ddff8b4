-- doctor_replay.sql: a repair was replayed by a task that says so, and whatever says so replayed one.
-- In the doctor's snapshot. Scans repairs and tasks. Retention may have forgotten the original.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT coalesce(r.queue_id, n.queue_id) AS queue_id, coalesce(r.uid, n.uid) AS uid,
           CASE WHEN r.uid IS NULL THEN ' says that it replays what it does not' ELSE ' has no replay that says so' END AS what
    FROM (SELECT * FROM repairs WHERE replayed_by IS NOT NULL) r
    FULL JOIN (SELECT * FROM tasks WHERE options ->> 'replay_of' IS NOT NULL) n ON n.queue_id = r.queue_id AND n.uid = r.replayed_by
    WHERE n.uid IS NULL OR n.options -> 'replay_of' ->> 1 <> r.uid::text
       OR (r.uid IS NULL AND EXISTS (SELECT FROM tasks o WHERE o.queue_id = n.queue_id AND o.uid = (n.options -> 'replay_of' ->> 1)::uuid))
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
