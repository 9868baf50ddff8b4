-- shares_wake.sql: says of shares that they may have READY tasks.
-- After shares_lock or shares_hold, which hold them; only for those that slept. Probes the primary key, in its order.
UPDATE shares s SET ready = true
WHERE s.share_id = ANY ($1::int[]) AND NOT s.ready
