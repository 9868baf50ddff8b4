-- repairs_by_uid.sql: what REPAIR_REQUIRED tasks left for people, in short.
-- Alone. Probes the primary keys.
SELECT r.uid, r.state, r.owner, r.next_action, r.replayed_by, n.task_id AS "replay_id?"
FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
CROSS JOIN LATERAL (SELECT * FROM repairs r WHERE r.queue_id = i.queue_id AND r.uid = i.uid OFFSET 0) AS r
LEFT JOIN tasks n ON n.queue_id = r.queue_id AND n.uid = r.replayed_by
