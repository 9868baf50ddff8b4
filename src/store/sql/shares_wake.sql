-- shares_wake.sql: says of shares that they may have READY tasks.
-- After shares_lock or shares_hold, only for those that slept. Sorted; probes the primary key.
UPDATE shares s SET ready = true
WHERE s.share_id = ANY ($1::int[]) AND NOT s.ready
