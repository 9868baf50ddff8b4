-- shares_unpark.sql: lets claims look at shares again that were parked at their cap.
-- In the transition transaction, after it ended leases of theirs and holds them. Probes the primary key, in its
-- order.
UPDATE shares s SET parked = false
WHERE s.share_id = ANY ($1::int[]) AND s.parked AND s.wake_at IS NULL
