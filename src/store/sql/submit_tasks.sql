-- submit_tasks.sql: takes the task ids that are free; which were, is what it returns.
-- First in the submit transaction. Sorted by id, so that two batches with the same ids wait instead of deadlocking.
INSERT INTO tasks (queue_id, uid, task_id, kind, content_type, target, event_id, fairness_key, ordering_key, cost, priority,
                   subjects, labels, options, digest)
SELECT i.queue_id, i.uid, i.task_id, i.kind, i.content_type, i.target, i.event_id, i.fairness_key, i.ordering_key, i.cost, i.priority,
       i.subjects, i.labels, i.options, i.digest
FROM unnest($1::int[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::int[],
            $11::smallint[], $12::jsonb[], $13::jsonb[], $14::jsonb[], $15::bytea[])
     AS i (queue_id, uid, task_id, kind, content_type, target, event_id, fairness_key, ordering_key, cost, priority,
           subjects, labels, options, digest)
ORDER BY i.queue_id, i.task_id
ON CONFLICT (queue_id, task_id) DO NOTHING
RETURNING uid
