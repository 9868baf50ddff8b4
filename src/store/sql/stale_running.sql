-- stale_running.sql: running tasks on a subject below its floor ($3; absent: revoked) that were not told to stop yet.
-- Alone, unlocked: the transition batch locks them and looks again. Walks live_leased_by_share; probes task_subjects task by task
-- whatever statistics say, which is what OFFSET is for.
SELECT l.uid
FROM live l
CROSS JOIN LATERAL (SELECT FROM task_subjects s
                    WHERE s.queue_id = $1 AND s.subject_id = $2 AND s.uid = l.uid AND ($3::bigint IS NULL OR s.version < $3)
                    OFFSET 0) AS stale
WHERE l.queue_id = $1 AND l.state = 'LEASED' AND l.cancel_cause IS NULL
