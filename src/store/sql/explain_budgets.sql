-- explain_budgets.sql: what a share and its queue may have leased, what they have, and what is in their buckets.
-- Alone. Probes the primary keys; counts leases up to the caps, in live_leased_by_share.
SELECT app_now() AS "now!: Timestamp",
       q.max_in_flight, q.rate_per_second, q.rate_burst, d.rate_level AS "rate_level?", d.rate_at AS "rate_at?: Timestamp",
       (SELECT count(*) FROM (SELECT FROM live l WHERE l.queue_id = $1 AND l.state = 'LEASED' LIMIT coalesce(q.max_in_flight, 0)) AS busy)
           AS "leased!",
       s.max_in_flight AS share_max_in_flight, s.rate_per_second AS share_rate_per_second, s.rate_burst AS share_rate_burst,
       s.rate_level AS share_rate_level, s.rate_at AS "share_rate_at: Timestamp",
       (SELECT count(*) FROM (SELECT FROM live l WHERE l.queue_id = $1 AND l.share_id = $2 AND l.state = 'LEASED'
                              LIMIT coalesce(s.max_in_flight, 0)) AS busy) AS "share_leased!"
FROM queues q
JOIN shares s ON s.share_id = $2
LEFT JOIN dispatch d ON d.queue_id = q.queue_id
WHERE q.queue_id = $1
