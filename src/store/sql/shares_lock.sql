-- shares_lock.sql: finds the shares of new tasks and keeps them from being put to sleep or removed meanwhile; tells how many unfinished
-- tasks their queue and they may have.
-- In the submit transaction, after the keys, before the rooms and the live rows. Probes shares_one_per_fairness_key.
SELECT s.queue_id, s.share_id, s.fairness_key, s.ready, q.max_unfinished, s.max_unfinished AS share_max_unfinished
FROM unnest($1::int[], $2::text[]) AS i (queue_id, fairness_key)
JOIN queues q ON q.queue_id = i.queue_id
JOIN shares s ON s.queue_id = i.queue_id AND s.fairness_key = i.fairness_key
ORDER BY s.queue_id, s.share_id
FOR KEY SHARE OF s
