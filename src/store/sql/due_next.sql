-- due_next.sql: how long until time alone changes something; absent if nothing waits for time.
-- Alone. Reads one entry of live_by_due.
SELECT app_now() AS "now!: Timestamp", (SELECT min(l.due) FROM live l) AS "due: Timestamp"
