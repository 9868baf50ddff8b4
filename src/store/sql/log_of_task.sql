-- log_of_task.sql: a task's log after a revision.
-- Alone, for watchers of one task. Walks events_by_task in each partition, so the log of the others costs nothing.
SELECT e.position, e.queue_id, e.uid, e.revision, e.time AS "time: Timestamp", e.kind, e.previous_state, e.state, e.cause,
       e.attempt, e.token, e.worker, e.evidence AS "evidence: Json<Evidence>"
FROM events e
WHERE e.queue_id = $1 AND e.uid = $2 AND e.revision > $3
ORDER BY e.revision
LIMIT $4
