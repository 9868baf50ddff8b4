-- others_tell.sql: hints to the other servers of this database, if there are any.
-- Alone, outside the write transactions: a NOTIFY inside would make their commits take turns.
SELECT pg_notify('leasehold_ready', $1) AS "told: ()"
WHERE (SELECT count(*) FROM pg_stat_activity a
       WHERE a.datname = current_database() AND a.application_name = 'leasehold-listener') > 1
