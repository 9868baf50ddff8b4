-- stats_since.sql: when the first event after a position happened.
-- In the read transaction of a count. Probes the primary key.
SELECT e.time AS "time!: Timestamp"
FROM events e
WHERE e.position > $1
ORDER BY e.position
LIMIT 1
