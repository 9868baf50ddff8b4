-- shares_remove.sql: removes shares that have neither work nor a policy nor a debt to those that still have work, looking again.
-- In a later statement than shares_idle_lock: what was committed before that one got its locks must be seen. Probes the same as shares_idle.
DELETE FROM shares s
USING (SELECT h.at
       FROM unnest($1::int[]) AS i (share_id)
       CROSS JOIN LATERAL (
           SELECT s.ctid AS at FROM shares s
           WHERE s.share_id = i.share_id
             AND s.weight = 1 AND s.max_in_flight IS NULL AND s.rate_per_second IS NULL AND s.max_unfinished IS NULL
             AND (s.tag <= coalesce((SELECT d.virtual_time FROM dispatch d WHERE d.queue_id = s.queue_id), 0)
                  OR NOT EXISTS (SELECT FROM live l WHERE l.queue_id = s.queue_id OFFSET 0))
             AND NOT EXISTS (SELECT FROM live l WHERE l.share_id = i.share_id AND l.state = 'READY' OFFSET 0)
             AND NOT EXISTS (SELECT FROM live l WHERE l.queue_id = s.queue_id AND l.share_id = i.share_id AND l.state = 'LEASED' OFFSET 0)
             AND NOT EXISTS (SELECT FROM live l WHERE l.share_id = i.share_id AND l.state IN ('SCHEDULED', 'BLOCKED', 'RETRY_AT') OFFSET 0)
           OFFSET 0) AS h) AS i
WHERE s.ctid = i.at
