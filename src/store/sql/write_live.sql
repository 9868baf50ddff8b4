-- write_live.sql: writes all that changes of unfinished tasks, and adds to the log ($31 to $42) what is to be told last in its
-- transaction. Then holds the shares of which leases ended ($30), so that none is parked meanwhile, and tells those that have a cap.
-- In the claim and transition transactions, on rows that they hold. Probes the primary keys.
WITH written AS (
    UPDATE live l
    SET state = i.state, revision = i.revision, attempt = i.attempt, charged = i.charged, releases = i.releases,
        unknown_attempts = i.unknown_attempts, token = i.token, report = i.report, rank = i.rank, wake = i.wake, due = i.due,
        worker = i.worker, lease_begin = i.lease_begin, lease_expire = i.lease_expire, lease_us = i.lease_us, stage = i.stage,
        effect_ref = i.effect_ref, effect_begun = i.effect_begun, reports_effect = i.reports_effect, heartbeat = i.heartbeat,
        call_id = i.call_id, claim_id = i.claim_id, cancel_cause = i.cancel_cause, cancel_reason = i.cancel_reason,
        updated = i.updated, first_lease = i.first_lease, notes = i.notes
    FROM (SELECT i.*, h.at FROM unnest($1::int[], $2::uuid[], $3::text[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[], $9::bigint[], $10::bigint[],
                $11::bigint[], $12::timestamptz[], $13::timestamptz[], $14::text[], $15::timestamptz[], $16::timestamptz[],
                $17::bigint[], $18::text[], $19::text[], $20::timestamptz[], $21::boolean[], $22::timestamptz[], $23::uuid[], $24::uuid[],
                $25::text[], $26::text[], $27::timestamptz[], $28::timestamptz[], $29::jsonb[])
         AS i (queue_id, uid, state, revision, attempt, charged, releases, unknown_attempts, token, report, rank, wake, due, worker,
               lease_begin, lease_expire, lease_us, stage, effect_ref, effect_begun, reports_effect, heartbeat, call_id, claim_id,
               cancel_cause, cancel_reason, updated, first_lease, notes)
          CROSS JOIN LATERAL (SELECT l.ctid AS at FROM live l WHERE l.queue_id = i.queue_id AND l.uid = i.uid OFFSET 0) AS h) AS i
    WHERE l.ctid = i.at
), told AS (
    INSERT INTO events (queue_id, uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence)
    SELECT i.queue_id, i.uid, i.revision, i.time, i.kind, i.previous_state, i.state, i.cause, i.attempt, i.token, i.worker, i.evidence
    FROM unnest($31::int[], $32::uuid[], $33::bigint[], $34::timestamptz[], $35::text[], $36::text[], $37::text[], $38::text[],
                $39::int[], $40::bigint[], $41::text[], $42::jsonb[])
         WITH ORDINALITY AS i (queue_id, uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence, ord)
    ORDER BY i.ord
)
SELECT s.queue_id, s.share_id, (s.parked AND s.wake_at IS NULL) AS "parked!", s.max_in_flight IS NOT NULL AS "capped!"
FROM shares s
WHERE s.share_id = ANY ($30::int[])
ORDER BY s.share_id
FOR KEY SHARE OF s
