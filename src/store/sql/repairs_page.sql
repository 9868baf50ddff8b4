-- repairs_page.sql: a page of repairs, the oldest first, each with its task and with how its replay stands; or the one of task $2.
-- In a read transaction with custom plans. Walks repairs_open_by_age or repairs_by_age; probes the primary key for one.
SELECT r.uid, r.state, r.cause, r.owner, r.next_action, r.receipt_ref, r.replayed_by, r.last_refusal, r.resolved_by, r.reason,
       r.key_id, r.position, r.opened AS "opened: Timestamp", r.updated AS "updated: Timestamp", r.resolved AS "resolved: Timestamp",
       t.task_id, t.kind, t.target, t.event_id, t.fairness_key, t.ordering_key,
       t.subjects AS "subjects: Json<Vec<(String, i64)>>", e.attempt, e.unknown_attempts, e.notes AS "notes: Json<Notes>",
       q.on_repair, n.task_id AS "replay_id?", coalesce(nl.state, ne.state) AS "replay_state?", ne.cause AS "replay_cause?",
       ne.ended AS "replay_ended?: Timestamp"
FROM repairs r
JOIN tasks t ON t.queue_id = r.queue_id AND t.uid = r.uid
JOIN ended e ON e.queue_id = r.queue_id AND e.uid = r.uid
JOIN queues q ON q.queue_id = r.queue_id
LEFT JOIN tasks n ON n.queue_id = r.queue_id AND n.uid = r.replayed_by
LEFT JOIN live nl ON nl.queue_id = r.queue_id AND nl.uid = r.replayed_by
LEFT JOIN ended ne ON ne.queue_id = r.queue_id AND ne.uid = r.replayed_by
WHERE r.queue_id = $1
  AND ($2::uuid IS NULL OR r.uid = $2)
  AND (r.opened, r.uid) > ($3::timestamptz, $4::uuid)
  AND ($5::timestamptz IS NULL OR r.opened <= $5)
  AND (($6 AND r.state = 'OPEN') OR (NOT $6 AND r.state = ANY ($7::text[])))
  AND ($8::text[] IS NULL OR r.cause = ANY ($8))
  AND ($9::text IS NULL OR r.owner = $9)
  AND ($10::text IS NULL OR t.kind = $10)
  AND ($11::text IS NULL OR t.target = $11)
  AND ($12::text IS NULL OR t.event_id = $12)
  AND ($13::text IS NULL OR t.fairness_key = $13)
  AND ($14::text IS NULL OR t.ordering_key = $14)
  AND ($15::jsonb IS NULL OR t.labels @> $15)
  AND ($16::text IS NULL OR EXISTS (SELECT FROM task_subjects s WHERE s.queue_id = $1 AND s.subject_id = $16 AND s.uid = r.uid))
ORDER BY r.opened, r.uid
LIMIT $17
