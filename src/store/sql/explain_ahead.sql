-- explain_ahead.sql: how many READY tasks of a share go before this one (counted up to a bound).
-- Alone. Walks live_ready_by_share.
SELECT (SELECT count(*) FROM (SELECT FROM live l WHERE l.share_id = $1 AND l.state = 'READY'
                                AND (l.rank, l.position) < ($2, $3) LIMIT 10000) AS ahead) AS "ahead!"
