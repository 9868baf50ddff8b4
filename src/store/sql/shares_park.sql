-- shares_park.sql: parks shares that are at their cap, counting again: whoever ends a lease of theirs from now on sees it.
-- In a later statement than shares_sleepy: what was committed while that one waited must be seen. Walks live_leased_by_share.
UPDATE shares s SET parked = true
WHERE s.share_id = ANY ($1::int[]) AND s.ready
  AND (SELECT count(*) FROM (SELECT FROM live l WHERE l.queue_id = s.queue_id AND l.share_id = s.share_id AND l.state = 'LEASED'
                             LIMIT s.max_in_flight) AS busy) >= s.max_in_flight
