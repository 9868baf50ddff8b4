-- claim_suspects.sql: which tasks a claim may have tried to lease: the next ones of the shares whose turn it is, only by name.
-- Alone, after a claim that met something unreadable. Walks shares_awake_by_tag and, $3 entries of each share, live_ready_by_share.
SELECT h.uid AS "uid!"
FROM (SELECT a.share_id FROM shares a WHERE a.queue_id = $1 AND a.ready AND NOT a.parked ORDER BY a.tag, a.share_id LIMIT $2) AS s
CROSS JOIN LATERAL (
    SELECT l.uid FROM live l
    WHERE l.share_id = s.share_id AND l.state = 'READY'
    ORDER BY l.rank, l.position LIMIT $3
) AS h
