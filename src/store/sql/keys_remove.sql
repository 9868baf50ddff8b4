-- keys_remove.sql: removes ordering keys that have no task left, looking again.
-- In a later statement than keys_idle_lock: what was committed before that one got its locks must be seen. Probes the same as keys_idle.
DELETE FROM ordering_keys k
USING unnest($1::int[], $2::bigint[]) AS i (queue_id, key_id)
WHERE k.queue_id = i.queue_id AND k.key_id = i.key_id
  AND NOT EXISTS (SELECT FROM live l WHERE l.queue_id = k.queue_id AND l.key_id = k.key_id)
  AND NOT EXISTS (SELECT FROM ended e WHERE e.queue_id = k.queue_id AND e.key_id = k.key_id)
  AND NOT EXISTS (SELECT FROM repairs r WHERE r.queue_id = k.queue_id AND r.key_id = k.key_id AND r.state = 'OPEN')
