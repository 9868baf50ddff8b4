-- repairs_to_replay.sql: open repairs that a filter picks: those that no replay was refused for first, then the oldest.
-- In a read transaction with custom plans. Walks the queue's part of repairs_open_by_age.
SELECT r.uid, r.last_refusal <> '' AS "refused!"
FROM repairs r
JOIN tasks t ON t.queue_id = r.queue_id AND t.uid = r.uid
WHERE r.queue_id = $1 AND r.state = 'OPEN'
  AND ($2::text[] IS NULL OR r.cause = ANY ($2))
  AND ($3::text IS NULL OR t.kind = $3)
  AND ($4::text IS NULL OR t.target = $4)
  AND ($5::text IS NULL OR t.event_id = $5)
  AND ($6::text IS NULL OR t.fairness_key = $6)
  AND ($7::text IS NULL OR t.ordering_key = $7)
  AND ($8::jsonb IS NULL OR t.labels @> $8)
  AND ($9::text IS NULL OR EXISTS (SELECT FROM task_subjects s WHERE s.queue_id = $1 AND s.subject_id = $9 AND s.uid = r.uid))
ORDER BY r.last_refusal <> '', r.opened, r.uid
LIMIT $10
