-- claim_lock_ids.sql: makes calls that repeat one request_id take turns. Sorted, so that they don't deadlock.
-- In the claim transaction, before claimed_before. Touches no table.
SELECT pg_advisory_xact_lock(id) AS "locked!: ()" FROM (SELECT id FROM unnest($1::bigint[]) AS i (id) ORDER BY id) AS sorted
