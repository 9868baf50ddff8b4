-- retention_forgettable.sql: locks a page of tasks that ended by $2 (of repairs: were resolved by then), the longest ago first; passes
-- over those on which late evidence is being kept just now.
-- In the retention transaction. Walks ended_by_time and repairs_by_resolution; probes the primary key.
SELECT t.uid
FROM (
    (SELECT e.uid FROM ended e
     WHERE e.queue_id = $1 AND e.state <> 'REPAIR_REQUIRED' AND e.ended <= $2::timestamptz
     ORDER BY e.ended, e.uid LIMIT $3)
    UNION ALL
    (SELECT r.uid FROM repairs r
     WHERE r.queue_id = $1 AND r.state <> 'OPEN' AND r.resolved <= $2
     ORDER BY r.resolved, r.uid LIMIT $3)
) AS page
CROSS JOIN LATERAL (SELECT t.uid FROM tasks t WHERE t.uid = page.uid FOR UPDATE SKIP LOCKED) AS t
