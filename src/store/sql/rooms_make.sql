-- rooms_make.sql: makes the rooms that are not there yet: empty, so that the first one counts.
-- In the submit transaction, before rooms_lock. Sorted, so that two writers of the same rooms wait instead of deadlocking.
INSERT INTO rooms (queue_id, share_id, room)
SELECT i.queue_id, i.share_id, 0 FROM unnest($1::int[], $2::int[]) AS i (queue_id, share_id) ORDER BY i.queue_id, i.share_id
ON CONFLICT (queue_id, share_id) DO NOTHING
