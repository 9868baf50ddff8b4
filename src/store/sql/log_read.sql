-- log_read.sql: what stands in the log after a position, as far as it is visible.
-- Alone, by the tail. Walks the primary key from there.
SELECT e.position, e.queue_id, e.uid, e.revision, e.time AS "time: Timestamp", e.kind, e.previous_state, e.state, e.cause,
       e.attempt, e.token, e.worker, e.evidence AS "evidence: Json<Evidence>"
FROM events e
WHERE e.position > $1
ORDER BY e.position
LIMIT $2
