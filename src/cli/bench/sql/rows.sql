-- rows.sql: row versions that updates and deletes left dead, those not yet cleared away, rows ever added to one table, and transactions,
-- of one database.
-- Alone, at both ends of a scenario. All lag alike, so that their ratios do not.
SELECT coalesce(sum(s.n_tup_upd + s.n_tup_del), 0)::bigint AS dead,
       coalesce(sum(s.n_dead_tup), 0)::bigint AS lying,
       coalesce(sum(s.n_tup_ins) FILTER (WHERE s.relname = $1), 0)::bigint AS added,
       (SELECT d.xact_commit FROM pg_stat_database d WHERE d.datname = current_database()) AS transactions
FROM pg_stat_user_tables s
