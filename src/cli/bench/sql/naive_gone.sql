-- naive_gone.sql: the task is unfinished no more.
-- Second in the naive Complete. Probes the primary key.
DELETE FROM live WHERE queue_id = $1 AND uid = $2
