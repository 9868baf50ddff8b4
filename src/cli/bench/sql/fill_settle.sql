-- fill_settle.sql: the database comes to rest after it was filled: what autovacuum would do at a moment of its own choice.
-- Alone, statement by statement.
VACUUM (ANALYZE) tasks, payloads, live, ended, shares, ordering_keys, queues;
ANALYZE events;
CHECKPOINT
