-- keys_make.sql: makes the ordering keys that are not there yet.
-- In the submit transaction, before keys_lock. Sorted, so that two writers of the same keys wait instead of deadlocking.
INSERT INTO ordering_keys (queue_id, key)
SELECT i.queue_id, i.key FROM unnest($1::int[], $2::text[]) AS i (queue_id, key) ORDER BY i.queue_id, i.key
ON CONFLICT (queue_id, key) DO NOTHING
