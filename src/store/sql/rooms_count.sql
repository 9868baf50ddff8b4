-- rooms_count.sql: how many unfinished tasks queues (share 0) and shares have, counted up to their limits.
-- In the submit transaction, in a later statement than rooms_lock: whoever accepted before has committed. Walks the primary key of live, or
-- live_ready_by_share, live_leased_by_share and live_waiting_by_share.
SELECT i.queue_id AS "queue_id!", i.share_id AS "share_id!",
       CASE WHEN i.share_id = 0
            THEN (SELECT count(*) FROM (SELECT FROM live l WHERE l.queue_id = i.queue_id LIMIT i.most) AS unfinished)
            ELSE (SELECT count(*) FROM (
                (SELECT 1 FROM live l WHERE l.share_id = i.share_id AND l.state = 'READY' LIMIT i.most)
                UNION ALL
                (SELECT 1 FROM live l WHERE l.queue_id = i.queue_id AND l.share_id = i.share_id AND l.state = 'LEASED' LIMIT i.most)
                UNION ALL
                (SELECT 1 FROM live l WHERE l.share_id = i.share_id
                    AND l.state IN ('SCHEDULED', 'BLOCKED', 'RETRY_AT') LIMIT i.most)) AS unfinished)
       END AS "unfinished!"
FROM unnest($1::int[], $2::int[], $3::bigint[]) AS i (queue_id, share_id, most)
