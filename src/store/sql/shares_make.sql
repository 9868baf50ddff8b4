-- shares_make.sql: makes the shares that are not there yet.
-- In the submit transaction, before shares_lock. Sorted, so that two writers of the same shares wait instead of deadlocking.
INSERT INTO shares (queue_id, fairness_key)
SELECT i.queue_id, i.fairness_key FROM unnest($1::int[], $2::text[]) AS i (queue_id, fairness_key)
ORDER BY i.queue_id, i.fairness_key
ON CONFLICT (queue_id, fairness_key) DO NOTHING
