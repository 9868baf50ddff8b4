-- sizes.sql: bytes of the tables that work leaves as large as it finds them, bytes of the whole database, and row versions that lie dead.
-- Alone, at intervals.
SELECT pg_total_relation_size('live')::bigint AS live, pg_database_size(current_database()) AS whole,
       (SELECT coalesce(sum(s.n_dead_tup), 0)::bigint FROM pg_stat_user_tables s) AS lying
