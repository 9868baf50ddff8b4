-- explain_head.sql: who keeps an ordering key: the unfinished task outside BLOCKED.
-- Alone. Probes live_one_head_per_key.
SELECT t.task_id, l.uid, l.state,
       (SELECT count(*) FROM live b WHERE b.queue_id = l.queue_id AND b.key_id = l.key_id AND b.state = 'BLOCKED' AND b.position < $3)
           AS "ahead!"
FROM live l
JOIN tasks t ON t.queue_id = l.queue_id AND t.uid = l.uid
WHERE l.queue_id = $1 AND l.key_id = $2 AND l.state <> 'BLOCKED'
