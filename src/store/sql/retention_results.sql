-- retention_results.sql: erases a page of results of tasks that ended by $4, from behind the mark on; how many, and where the page ends.
-- In the retention transaction. Walks ended_by_time; probes the primary key. By ctid:
-- such rows are never updated, only deleted.
WITH page AS MATERIALIZED (
    SELECT e.ended, e.uid FROM ended e
    WHERE e.queue_id = $1 AND e.state <> 'REPAIR_REQUIRED' AND (e.ended, e.uid) > ($2::timestamptz, $3::uuid) AND e.ended <= $4
    ORDER BY e.ended, e.uid LIMIT $5
), gone AS (
    DELETE FROM results p
    USING (SELECT h.at FROM page CROSS JOIN LATERAL (SELECT p.ctid AS at FROM results p WHERE p.queue_id = $1 AND p.uid = page.uid OFFSET 0) AS h) AS i
    WHERE p.ctid = i.at
    RETURNING p.uid
)
SELECT page.ended AS "ended!: Timestamp", page.uid AS "uid!", (SELECT count(*) FROM page) AS "looked!",
       (SELECT count(*) FROM gone) AS "erased!"
FROM page
ORDER BY page.ended DESC, page.uid DESC
LIMIT 1
