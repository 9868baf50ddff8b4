-- freeze.sql: the statistics stay what they are now, whatever is written.
-- Alone, statement by statement.
ANALYZE;
ALTER TABLE tasks SET (autovacuum_enabled = false);
ALTER TABLE payloads SET (autovacuum_enabled = false);
ALTER TABLE live SET (autovacuum_enabled = false);
ALTER TABLE ended SET (autovacuum_enabled = false);
ALTER TABLE shares SET (autovacuum_enabled = false);
ALTER TABLE ordering_keys SET (autovacuum_enabled = false);
ALTER TABLE events_0 SET (autovacuum_enabled = false)
