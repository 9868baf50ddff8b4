-- lock_tasks.sql: locks finished tasks, so that late evidence on each is counted and numbered by one writer at a time.
-- First in the transaction that keeps late evidence. Probes the primary key.
SELECT t.uid
FROM (SELECT i.uid FROM unnest($1::uuid[]) AS i (uid) ORDER BY i.uid) AS i
CROSS JOIN LATERAL (SELECT t.uid FROM tasks t WHERE t.uid = i.uid FOR NO KEY UPDATE) AS t
