-- log_of_queue.sql: a queue's part of a stretch of the log (after $2, up to $3).
-- Alone, for watchers that the tail does not reach. Walks the primary key over the stretch, which the caller keeps short.
SELECT e.position, e.queue_id, e.uid, e.revision, e.time AS "time: Timestamp", e.kind, e.previous_state, e.state, e.cause,
       e.attempt, e.token, e.worker, e.evidence AS "evidence: Json<Evidence>"
FROM events e
WHERE e.queue_id = $1 AND e.position > $2 AND e.position <= $3
ORDER BY e.position
LIMIT $4
