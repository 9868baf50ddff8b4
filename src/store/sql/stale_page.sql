-- stale_page.sql: a page of the tasks on a subject below its floor ($4; absent: revoked), and which are to be canceled or told still.
-- Alone, unlocked: the transition batch locks them and looks again. Walks the primary key of task_subjects, from behind $3 on; probes
-- live task by task whatever statistics say, which is what OFFSET is for.
SELECT s.uid, l.uid IS NOT NULL AND l.cancel_cause IS NULL AS "open!"
FROM (SELECT t.uid FROM task_subjects t
      WHERE t.queue_id = $1 AND t.subject_id = $2 AND t.uid > $3 AND ($4::bigint IS NULL OR t.version < $4)
      ORDER BY t.uid LIMIT $5) AS s
LEFT JOIN LATERAL (SELECT a.uid, a.cancel_cause FROM live a WHERE a.queue_id = $1 AND a.uid = s.uid OFFSET 0) AS l ON true
ORDER BY s.uid
