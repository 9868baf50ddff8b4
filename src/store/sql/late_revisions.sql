-- late_revisions.sql: the latest revision that the log gave to finished tasks: evidence goes on after the end.
-- In the transaction that holds their rows in tasks. Walks events_by_task backwards.
SELECT i.uid AS "uid!", (SELECT max(e.revision) FROM events e WHERE e.queue_id = i.queue_id AND e.uid = i.uid) AS "revision?"
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
