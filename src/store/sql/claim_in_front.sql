-- claim_in_front.sql: the first READY task in front of each of some places in shares' lines, where there is one.
-- Alone, once a second. Walks live_ready_by_share.
SELECT i.queue_id AS "queue_id!", h.rank AS "rank!"
FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[]) AS i (queue_id, share_id, rank, position)
CROSS JOIN LATERAL (
    SELECT l.rank FROM live l
    WHERE l.share_id = i.share_id AND l.state = 'READY' AND l.uid <> ALL ($5::uuid[])
      AND (l.rank, l.position) < (i.rank, i.position)
    ORDER BY l.rank, l.position LIMIT 1
) AS h
