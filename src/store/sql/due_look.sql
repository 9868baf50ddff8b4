-- due_look.sql: the clock, the next moment at which time alone changes a task (absent: none waits for time), and those that it has moved
-- by now, the longest overdue first, at most $2. As if there were no $1.
-- Alone, unlocked: the transition batch locks the tasks and looks again. One row without a task where there is none. Walks live_by_due.
SELECT t.now AS "now!: Timestamp", (SELECT min(l.due) FROM live l WHERE l.uid <> ALL ($1::uuid[])) AS "due: Timestamp",
       d.queue_id AS "queue_id?", d.uid AS "uid?", d.lease_expire AS "lease_expire: Timestamp"
FROM (SELECT app_now() AS now OFFSET 0) t
LEFT JOIN LATERAL (
    SELECT l.queue_id, l.uid, l.lease_expire, l.due FROM live l
    WHERE l.due <= t.now AND l.uid <> ALL ($1::uuid[])
    ORDER BY l.due
    LIMIT $2
) d ON true
ORDER BY d.due
