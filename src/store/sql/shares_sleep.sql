-- shares_sleep.sql: puts shares to sleep that have no READY task, looking again.
-- In a later statement than shares_sleepy: what was committed while that one waited must be seen. Probes live_ready_by_share.
UPDATE shares s SET ready = false
WHERE s.share_id = ANY ($1::int[])
  AND NOT EXISTS (SELECT FROM live l WHERE l.share_id = s.share_id AND l.state = 'READY' OFFSET 0)
