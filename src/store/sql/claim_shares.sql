-- claim_shares.sql: what a claim goes by: whether its queue is paused or bounded, and the first two shares whose turn it may be. The gate
-- keeps all of that as it is until the claim ends; only who is awake may change.
-- In the claim transaction. Walks shares_awake_by_tag; reads one entry of shares_parked_until.
SELECT q.paused, (q.max_in_flight IS NOT NULL OR q.rate_per_second IS NOT NULL) AS "bounded!",
       EXISTS (SELECT FROM shares p WHERE p.queue_id = $1 AND p.wake_at IS NOT NULL) AS "parked!",
       s.share_id AS "share_id?", s.bounded AS "share_bounded?"
FROM queues q
LEFT JOIN LATERAL (
    SELECT a.share_id, (a.max_in_flight IS NOT NULL OR a.rate_per_second IS NOT NULL) AS bounded
    FROM shares a
    WHERE a.queue_id = q.queue_id AND a.ready AND NOT a.parked
    ORDER BY a.tag, a.share_id LIMIT 2
) AS s ON true
WHERE q.queue_id = $1
