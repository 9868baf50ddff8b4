-- dispatch_shares.sql: the clock that rates go by, the queue's budgets and what it has leased, and the same of the shares that may have
-- READY tasks, the one whose turn it is first.
-- In the claim transaction, in a later statement than dispatch_lock: whoever held that lock before has committed its leases. Walks
-- shares_awake_by_tag and, where there is a cap, as much of live_leased_by_share.
SELECT (SELECT app_now()) AS "now!: Timestamp",
       (SELECT min(p.wake_at) FROM shares p WHERE p.queue_id = $1 AND p.wake_at IS NOT NULL) AS "wake_at: Timestamp",
       q.max_in_flight, q.rate_per_second, q.rate_burst,
       (SELECT count(*) FROM (SELECT FROM live l WHERE l.queue_id = $1 AND l.state = 'LEASED' LIMIT coalesce(q.max_in_flight, 0)) AS busy)
           AS "leased!",
       s.share_id AS "share_id?", s.tag AS "tag?", s.weight AS "weight?", s.max_in_flight AS "share_max_in_flight?",
       s.rate_per_second AS "share_rate_per_second?", s.rate_burst AS "share_rate_burst?", s.rate_level AS "share_rate_level?",
       s.rate_at AS "share_rate_at: Timestamp",
       (SELECT count(*) FROM (SELECT FROM live l WHERE l.queue_id = $1 AND l.share_id = s.share_id AND l.state = 'LEASED'
                              LIMIT coalesce(s.max_in_flight, 0)) AS busy) AS "share_leased!"
FROM queues q
LEFT JOIN LATERAL (
    SELECT a.* FROM shares a
    WHERE a.queue_id = q.queue_id AND a.ready AND NOT a.parked
    ORDER BY a.tag, a.share_id LIMIT $2
) AS s ON true
WHERE q.queue_id = $1
ORDER BY s.tag, s.share_id
