-- list_live.sql: a page of unfinished tasks, by uid, the newest first; $13: only those that were not told to stop.
-- In a read transaction with custom plans. Walks live by primary key, or tasks_by_event / tasks_by_target where those are asked for.
SELECT l.queue_id, l.uid, l.share_id, l.key_id, l.position, l.state, l.revision, l.attempt, l.charged, l.max_attempts,
       l.releases, l.unknown_attempts, l.token, l.report, l.rank, l.cost, l.size, l.wake AS "wake: Timestamp",
       l.deadline AS "deadline: Timestamp", l.worker, l.lease_begin AS "lease_begin: Timestamp",
       l.lease_expire AS "lease_expire: Timestamp", l.lease_us, l.stage, l.effect_ref,
       l.effect_begun AS "effect_begun: Timestamp", l.reports_effect, l.heartbeat AS "heartbeat: Timestamp", l.call_id,
       l.claim_id, l.cancel_cause, l.cancel_reason, l.accepted AS "accepted: Timestamp", l.updated AS "updated: Timestamp",
       l.first_lease AS "first_lease: Timestamp", l.notes AS "notes: Json<Notes>"
FROM live l
JOIN tasks t ON t.queue_id = l.queue_id AND t.uid = l.uid
WHERE l.queue_id = $1 AND l.uid < $2 AND t.uid < $2
  AND l.state = ANY ($3::text[])
  AND ($4::text IS NULL OR t.kind = $4)
  AND ($5::text IS NULL OR (t.target = $5 AND t.target <> ''))
  AND ($6::text IS NULL OR (t.event_id = $6 AND t.event_id <> ''))
  AND ($7::text IS NULL OR t.fairness_key = $7)
  AND ($8::text IS NULL OR l.key_id = (SELECT k.key_id FROM ordering_keys k WHERE k.queue_id = $1 AND k.key = $8))
  AND ($9::text IS NULL OR l.worker = $9)
  AND ($10::jsonb IS NULL OR t.labels @> $10)
  AND ($11::text IS NULL OR EXISTS (SELECT FROM task_subjects s WHERE s.queue_id = $1 AND s.subject_id = $11 AND s.uid = l.uid))
  AND (NOT $13::boolean OR l.cancel_cause IS NULL)
ORDER BY l.uid DESC
LIMIT $12
