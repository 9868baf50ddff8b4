-- list_ended.sql: a page of finished tasks, by uid, the newest first.
-- A worker ($9) holds none of them any more. In the read transaction of list_live. Walks ended by primary key, or ended_otherwise_by_state, tasks_by_event, tasks_by_target.
SELECT e.queue_id, e.uid, e.key_id, e.position, e.state, e.cause, e.reason, e.revision, e.attempt, e.charged,
       e.max_attempts, e.unknown_attempts, e.token, e.report, e.boundary, e.accepted AS "accepted: Timestamp",
       e.ended AS "ended: Timestamp", e.deadline AS "deadline: Timestamp", e.first_lease AS "first_lease: Timestamp",
       e.stage, e.worker, e.evidence AS "evidence: Json<Evidence>", e.notes AS "notes: Json<Notes>"
FROM ended e
JOIN tasks t ON t.queue_id = e.queue_id AND t.uid = e.uid
WHERE e.queue_id = $1 AND e.uid < $2 AND t.uid < $2
  AND e.state = ANY ($3::text[])
  AND ($4::text IS NULL OR t.kind = $4)
  AND ($5::text IS NULL OR (t.target = $5 AND t.target <> ''))
  AND ($6::text IS NULL OR (t.event_id = $6 AND t.event_id <> ''))
  AND ($7::text IS NULL OR t.fairness_key = $7)
  AND ($8::text IS NULL OR e.key_id = (SELECT k.key_id FROM ordering_keys k WHERE k.queue_id = $1 AND k.key = $8))
  AND $9::text IS NULL
  AND ($10::jsonb IS NULL OR t.labels @> $10)
  AND ($11::text IS NULL OR EXISTS (SELECT FROM task_subjects s WHERE s.queue_id = $1 AND s.subject_id = $11 AND s.uid = e.uid))
ORDER BY e.uid DESC
LIMIT $12
