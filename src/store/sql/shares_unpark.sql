-- shares_unpark.sql: lets claims look at shares again that were parked at their cap.
-- In the transition transaction, after it ended leases of theirs and holds them. Sorted; probes the primary key.
UPDATE shares s SET parked = false
FROM (SELECT w.queue_id, w.share_id
      FROM unnest($1::int[], $2::int[]) AS i (queue_id, share_id)
      JOIN shares w ON w.queue_id = i.queue_id AND w.share_id = i.share_id
      ORDER BY w.queue_id, w.share_id
      FOR NO KEY UPDATE OF w) AS held
WHERE s.queue_id = held.queue_id AND s.share_id = held.share_id AND s.parked AND s.wake_at IS NULL
