-- dispatch_unpark.sql: lets shares be looked at again whose rate has room by now.
-- In the claim transaction that holds the dispatch row. Walks shares_parked_until.
UPDATE shares s SET parked = false, wake_at = NULL WHERE s.queue_id = $1 AND s.wake_at <= $2::timestamptz
