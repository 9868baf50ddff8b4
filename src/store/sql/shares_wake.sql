-- shares_wake.sql: says of shares that they may have READY tasks.
-- After shares_lock or shares_hold, only for those that slept. Sorted; probes the primary key.
UPDATE shares s SET ready = true
FROM (SELECT w.queue_id, w.share_id
      FROM unnest($1::int[], $2::int[]) AS i (queue_id, share_id)
      JOIN shares w ON w.queue_id = i.queue_id AND w.share_id = i.share_id
      ORDER BY w.queue_id, w.share_id
      FOR NO KEY UPDATE OF w) AS held
WHERE s.queue_id = held.queue_id AND s.share_id = held.share_id AND NOT s.ready
