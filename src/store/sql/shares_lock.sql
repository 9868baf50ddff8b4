-- shares_lock.sql: finds the shares of new tasks and keeps them from being put to sleep or removed meanwhile; tells how many unfinished
-- tasks their queue and they may have.
-- In the submit transaction, after the keys, before the rooms and the live rows. Probes shares_one_per_fairness_key.
SELECT s.queue_id, s.share_id, s.fairness_key, s.ready, q.max_unfinished, s.max_unfinished AS share_max_unfinished
FROM (SELECT i.queue_id, named.share_id
      FROM unnest($1::int[], $2::text[]) AS i (queue_id, fairness_key)
      CROSS JOIN LATERAL (SELECT s.share_id FROM shares s WHERE s.queue_id = i.queue_id AND s.fairness_key = i.fairness_key OFFSET 0) AS named
      ORDER BY named.share_id) AS i
CROSS JOIN LATERAL (SELECT * FROM shares s WHERE s.share_id = i.share_id FOR KEY SHARE) AS s
CROSS JOIN LATERAL (SELECT * FROM queues q WHERE q.queue_id = i.queue_id OFFSET 0) AS q
