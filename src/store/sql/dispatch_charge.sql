-- dispatch_charge.sql: charges the shares and the queue for what was dispatched, moves the queue's virtual time, and parks the shares that
-- are out of tokens until their next task may go.
-- In the claim transaction that holds the dispatch row, so the order of the shares does not matter. Probes the primary keys.
WITH moved AS (UPDATE dispatch SET virtual_time = $2, rate_level = $3, rate_at = $4 WHERE queue_id = $1)
UPDATE shares s SET tag = i.tag, rate_level = i.rate_level, rate_at = i.rate_at, parked = i.parked, wake_at = i.wake_at
FROM unnest($5::int[], $6::double precision[], $7::double precision[], $8::timestamptz[], $9::boolean[], $10::timestamptz[])
     AS i (share_id, tag, rate_level, rate_at, parked, wake_at)
WHERE s.share_id = ANY ($5) AND s.share_id = i.share_id
