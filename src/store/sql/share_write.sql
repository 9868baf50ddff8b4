-- share_write.sql: writes a share's policy. A change of weight rescales what it owes, so that it acts on the waiting backlog at once; and
-- claims look at the share again, whatever it was parked for.
-- In PutShare's transaction, under the queue's gate: no claim compares tags meanwhile. Probes the primary keys.
UPDATE shares s
SET tag = v.virtual_time + greatest(s.tag - v.virtual_time, 0) * s.weight / $3,
    weight = $3, max_in_flight = $4, rate_per_second = $5, rate_burst = $6, max_unfinished = $7, etag = $8, parked = false, wake_at = NULL
FROM (SELECT coalesce((SELECT d.virtual_time FROM dispatch d WHERE d.queue_id = $1), 0) AS virtual_time) AS v
WHERE s.share_id = $2
