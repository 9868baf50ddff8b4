-- events_page.sql: the log of one task's attempts $3 to $4.
-- Alone. Walks events_by_task in each partition.
SELECT e.uid, e.revision, e.time AS "time: Timestamp", e.kind, e.previous_state, e.state, e.cause, e.attempt, e.token,
       e.worker, e.evidence AS "evidence: Json<Evidence>"
FROM events e
WHERE e.queue_id = $1 AND e.uid = $2 AND e.attempt BETWEEN $3 AND $4
ORDER BY e.revision
