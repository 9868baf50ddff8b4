-- moment.sql: the transaction's one reading of the clock, the policies that its decisions go by, and the numbers that it hands out.
-- After the transaction's last lock: read before a lock wait, the clock would judge a dead lease alive, tokens would not rise along a
-- key, and a place would lie about who came first. Probes the primary key; $2 names a sequence, of which $3 numbers are drawn. They are
-- good only where the database is still the one that `lineage` says (5 µs).
SELECT (SELECT app_now()) AS "now!: Timestamp",
       CASE WHEN pg_is_in_recovery() THEN false ELSE coalesce((
           SELECT l.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
                  AND l.system_identifier = (SELECT c.system_identifier FROM pg_control_system() c)
           FROM lineage l WHERE l.one_row), false) END AS "same_database!",
       ARRAY(SELECT nextval($2::text::regclass) FROM generate_series(1, $3)) AS "drawn!",
       q.queue_id AS "queue_id?", q.name AS "name?", q.boundary AS "boundary?", q.paused AS "paused?", q.on_unknown AS "on_unknown?",
       q.on_repair AS "on_repair?", q.max_attempts AS "max_attempts?", q.initial_backoff_us AS "initial_backoff_us?",
       q.max_backoff_us AS "max_backoff_us?", q.multiplier AS "multiplier?", q.jitter AS "jitter?", q.default_ttl_us AS "default_ttl_us?",
       q.lease_us AS "lease_us?", q.priority_step_us AS "priority_step_us?", q.deadline_margin_us AS "deadline_margin_us?",
       q.payload_retention_us AS "payload_retention_us?", q.result_retention_us AS "result_retention_us?",
       q.evidence_retention_us AS "evidence_retention_us?", q.stalled AS "stalled?: Timestamp",
       q.max_in_flight AS "max_in_flight?", q.rate_per_second AS "rate_per_second?", q.rate_burst AS "rate_burst?",
       q.max_unfinished AS "max_unfinished?", q.etag AS "etag?"
FROM (SELECT 1) AS always
LEFT JOIN queues q ON q.queue_id = ANY ($1::int[])
