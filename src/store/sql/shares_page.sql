-- shares_page.sql: a page of a queue's shares by key, in the order of its bytes whatever the database's collation.
-- Alone. $2 absent: from the first on. Reads the queue's shares.
SELECT share_id, fairness_key, weight, max_in_flight, rate_per_second, rate_burst, max_unfinished, etag
FROM shares
WHERE queue_id = $1 AND ($2::text IS NULL OR fairness_key COLLATE "C" > $2)
ORDER BY fairness_key COLLATE "C"
LIMIT $3
