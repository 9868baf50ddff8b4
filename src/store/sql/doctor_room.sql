-- doctor_room.sql: no room promises more than there is under the limit, and only what has a limit has a room.
-- In the doctor's snapshot. Scans rooms; counts live for each.
SELECT concat(q.name, ': ', f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT r.queue_id,
           concat(CASE WHEN r.share_id = 0 THEN 'the queue' ELSE concat('the share ', coalesce(s.fairness_key, r.share_id::text)) END,
                  ' has room for ', r.room, ', its limit is ', coalesce(b.most::text, 'none'), ' and unfinished are ', b.unfinished) AS what
    FROM rooms r
    LEFT JOIN queues q USING (queue_id)
    LEFT JOIN shares s USING (queue_id, share_id)
    CROSS JOIN LATERAL (SELECT CASE WHEN r.share_id = 0 THEN q.max_unfinished ELSE s.max_unfinished END AS most,
                               (SELECT count(*) FROM live l WHERE l.queue_id = r.queue_id AND r.share_id IN (0, l.share_id)) AS unfinished) b
    WHERE b.most IS NULL OR (r.room > 0 AND r.room > b.most - b.unfinished)
) AS f
LEFT JOIN queues q USING (queue_id)
ORDER BY 1
LIMIT $1
