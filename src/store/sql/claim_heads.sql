-- claim_heads.sql: the next READY tasks of several shares, unlocked: cost and place, the next ones first.
-- In the claim transaction, after dispatch_lock. Walks live_ready_by_share from each share's low mark on, at most as many entries as
-- "depth" says.
SELECT h.uid AS "uid!", i.share_id AS "share_id!", h.cost AS "cost!", h.rank AS "rank!", h.position AS "position!"
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
     AS i (share_id, depth, low_rank, low_position, ord)
CROSS JOIN LATERAL (
    SELECT l.uid, l.cost, l.rank, l.position FROM live l
    WHERE l.share_id = i.share_id AND l.state = 'READY'
      AND (l.rank, l.position) >= (i.low_rank, i.low_position)
    ORDER BY l.rank, l.position LIMIT i.depth
) AS h
ORDER BY i.ord, h.rank, h.position
