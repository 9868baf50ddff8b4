-- claim_heads.sql: the next READY tasks of several shares, unlocked: cost and rank, the next ones first.
-- In the claim transaction, after dispatch_lock. Walks live_ready_by_share, at most as many entries of each share as $3 says.
SELECT h.uid AS "uid!", i.share_id AS "share_id!", h.cost AS "cost!"
FROM unnest($2::int[], $3::bigint[]) WITH ORDINALITY AS i (share_id, depth, ord)
CROSS JOIN LATERAL (
    SELECT l.uid, l.cost, l.rank, l.position FROM live l
    WHERE l.queue_id = $1 AND l.share_id = i.share_id AND l.state = 'READY'
    ORDER BY l.rank, l.position LIMIT i.depth
) AS h
ORDER BY i.ord, h.rank, h.position
