-- doctor_one_head.sql: at most one unfinished task of a key is outside BLOCKED.
-- In the doctor's snapshot. Scans live: the unique index that forbids it may itself be broken.
SELECT concat(q.name, ': ', f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT l.queue_id, concat('the key ', coalesce(k.key, l.key_id::text), ' has ', count(*), ' heads') AS what
    FROM live l LEFT JOIN ordering_keys k USING (queue_id, key_id)
    WHERE l.key_id IS NOT NULL AND l.state <> 'BLOCKED'
    GROUP BY l.queue_id, l.key_id, k.key
    HAVING count(*) > 1
) AS f
LEFT JOIN queues q USING (queue_id)
ORDER BY 1
LIMIT $1
