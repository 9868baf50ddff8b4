-- share_find.sql: a share by its key, locked to be changed.
-- In PutShare's transaction, under the queue's gate. Probes shares_one_per_fairness_key.
SELECT share_id, fairness_key, weight, max_in_flight, rate_per_second, rate_burst, max_unfinished, etag
FROM shares
WHERE queue_id = $1 AND fairness_key = $2
FOR NO KEY UPDATE
