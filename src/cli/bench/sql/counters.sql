-- counters.sql: bytes of WAL ever written, and transactions that ever wrote, of the whole cluster.
-- Alone, at both ends of a measured window. Exact at once, unlike pg_stat_wal and pg_stat_database, which lag by a second or more.
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS wal, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS writers
