-- shares_idle.sql: a page of shares, and whether each has neither work nor a policy nor a debt to those that still have work.
-- Alone, unlocked: shares_remove looks again. Walks the primary key; probes live_ready_by_share, live_leased_by_share, live_waiting_by_share.
SELECT s.share_id,
       (s.weight = 1 AND s.max_in_flight IS NULL AND s.rate_per_second IS NULL AND s.max_unfinished IS NULL
        AND (s.tag <= coalesce((SELECT d.virtual_time FROM dispatch d WHERE d.queue_id = s.queue_id), 0)
             OR NOT EXISTS (SELECT FROM live l WHERE l.queue_id = s.queue_id OFFSET 0))
        AND NOT EXISTS (SELECT FROM live l WHERE l.share_id = s.share_id AND l.state = 'READY' OFFSET 0)
        AND NOT EXISTS (SELECT FROM live l WHERE l.queue_id = s.queue_id AND l.share_id = s.share_id AND l.state = 'LEASED' OFFSET 0)
        AND NOT EXISTS (SELECT FROM live l WHERE l.share_id = s.share_id
                                             AND l.state IN ('SCHEDULED', 'BLOCKED', 'RETRY_AT') OFFSET 0)) AS "idle!"
FROM shares s
WHERE s.share_id > $1
ORDER BY s.share_id
LIMIT $2
