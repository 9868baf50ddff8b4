-- stats_live.sql: counts a queue's unfinished tasks by share and state, with the oldest, and the leases that have run out.
-- In the read transaction of a count. Reads the queue's part of `live` once; the engine bounds how often.
SELECT l.share_id, l.state, count(*) AS "count!", min(l.accepted) AS "oldest!: Timestamp", max(l.cost) AS "cost!",
       count(*) FILTER (WHERE l.lease_expire <= $2) AS "expired!"
FROM live l
WHERE l.queue_id = $1
GROUP BY l.share_id, l.state
