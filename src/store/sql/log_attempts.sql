-- log_attempts.sql: for each of these events, what its attempt had come to with it: the attempt's events up to that revision.
-- Alone. Walks events_by_task backwards from the event, over at most $5 events of the task.
SELECT i.ord AS "ord!", e.uid, e.revision, e.time AS "time: Timestamp", e.kind, e.previous_state, e.state, e.cause, e.attempt,
       e.token, e.worker, e.evidence AS "evidence: Json<Evidence>"
FROM unnest($1::int[], $2::uuid[], $3::int[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
     AS i (queue_id, uid, attempt, revision, depth, ord)
CROSS JOIN LATERAL (
    SELECT * FROM events t
    WHERE t.queue_id = i.queue_id AND t.uid = i.uid AND t.revision <= i.revision
    ORDER BY t.revision DESC
    LIMIT i.depth
) AS e
WHERE e.attempt = i.attempt
ORDER BY i.ord, e.revision
