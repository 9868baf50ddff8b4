-- ended_by_uid.sql: reads finished tasks, which never change.
-- In any transaction or none, after the live rows were looked at: what is in neither has been forgotten. Probes the primary key.
SELECT e.queue_id, e.uid, e.key_id, e.position, e.state, e.cause, e.reason, e.revision, e.attempt, e.charged,
       e.max_attempts, e.unknown_attempts, e.token, e.report, e.boundary, e.accepted AS "accepted: Timestamp",
       e.ended AS "ended: Timestamp", e.deadline AS "deadline: Timestamp", e.first_lease AS "first_lease: Timestamp",
       e.stage, e.worker, e.evidence AS "evidence: Json<Evidence>", e.notes AS "notes: Json<Notes>"
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (SELECT * FROM ended e WHERE e.queue_id = i.queue_id AND e.uid = i.uid OFFSET 0) AS e
