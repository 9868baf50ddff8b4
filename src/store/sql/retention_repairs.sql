-- retention_repairs.sql: erases a page of payloads of tasks whose repairs were resolved by $4, from behind the mark on; how many, and where
-- the page ends. An open repair keeps its payload.
-- In the retention transaction. Walks repairs_by_resolution; probes the primary key. By ctid:
-- such rows are never updated, only deleted.
WITH page AS MATERIALIZED (
    SELECT r.resolved, r.uid FROM repairs r
    WHERE r.queue_id = $1 AND r.state <> 'OPEN' AND (r.resolved, r.uid) > ($2::timestamptz, $3::uuid) AND r.resolved <= $4
    ORDER BY r.resolved, r.uid LIMIT $5
), gone AS (
    DELETE FROM payloads p
    USING (SELECT h.at FROM page CROSS JOIN LATERAL (SELECT p.ctid AS at FROM payloads p WHERE p.queue_id = $1 AND p.uid = page.uid OFFSET 0) AS h) AS i
    WHERE p.ctid = i.at
    RETURNING p.uid
)
SELECT page.resolved AS "ended!: Timestamp", page.uid AS "uid!", (SELECT count(*) FROM page) AS "looked!",
       (SELECT count(*) FROM gone) AS "erased!"
FROM page
ORDER BY page.resolved DESC, page.uid DESC
LIMIT 1
