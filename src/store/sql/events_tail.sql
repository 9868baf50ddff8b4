-- events_tail.sql: the end of the log of some tasks, at most $3 events each, in order of revision.
-- In the claim transaction, for tasks with unknown attempts. Walks events_by_task backwards, so a long history costs nothing.
SELECT e.uid, e.revision, e.time AS "time: Timestamp", e.kind, e.previous_state, e.state, e.cause, e.attempt, e.token,
       e.worker, e.evidence AS "evidence: Json<Evidence>"
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (
    SELECT * FROM events t WHERE t.queue_id = i.queue_id AND t.uid = i.uid ORDER BY t.revision DESC LIMIT $3
) AS e
ORDER BY e.uid, e.revision
