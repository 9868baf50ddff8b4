-- keys_remove.sql: removes ordering keys that have no task left, looking again.
-- In a later statement than keys_idle_lock: what was committed before that one got its locks must be seen. Probes the same as keys_idle.
DELETE FROM ordering_keys k
USING (SELECT h.at
       FROM unnest($1::bigint[]) AS i (key_id)
       CROSS JOIN LATERAL (
           SELECT k.ctid AS at FROM ordering_keys k
           WHERE k.key_id = i.key_id
             AND NOT EXISTS (SELECT FROM live l WHERE l.key_id = i.key_id OFFSET 0)
             AND NOT EXISTS (SELECT FROM ended e WHERE e.key_id = i.key_id OFFSET 0)
             AND NOT EXISTS (SELECT FROM repairs r WHERE r.key_id = i.key_id AND r.state = 'OPEN' OFFSET 0)
           OFFSET 0) AS h) AS i
WHERE k.ctid = i.at
