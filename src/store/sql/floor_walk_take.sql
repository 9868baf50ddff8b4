-- floor_walk_take.sql: takes the walk that has been due for longest, so that no other server begins it before $2.
-- In the loop's transaction, after the clock ($1). Walks subjects_to_walk.
UPDATE subjects f SET walk_due = $2
FROM (SELECT w.queue_id, w.subject_id FROM subjects w WHERE w.walk_due <= $1 ORDER BY w.walk_due LIMIT 1
      FOR NO KEY UPDATE SKIP LOCKED) AS due
WHERE f.queue_id = due.queue_id AND f.subject_id = due.subject_id
RETURNING f.queue_id, f.subject_id, f.min_version, f.revoked, f.reason, f.updated AS "updated: Timestamp"
