-- write_ended.sql: moves tasks from `live` to `ended`, with their results, opens the repairs of those that need people, and adds to the
-- log ($28 to $39) what is to be told last in its transaction. Then holds the shares of which leases ended ($27), so that none is
-- parked meanwhile, and tells those that have a cap.
-- In the transition transaction, before write_live unblocks a successor: a key has one head at any instant.
WITH gone AS (
    DELETE FROM live l
    USING (SELECT h.at FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid)
           CROSS JOIN LATERAL (SELECT l.ctid AS at FROM live l WHERE l.queue_id = i.queue_id AND l.uid = i.uid OFFSET 0) AS h) AS i
    WHERE l.ctid = i.at
), kept AS (
    INSERT INTO results (queue_id, uid, result)
    SELECT r.queue_id, r.uid, r.result FROM unnest($24::int[], $25::uuid[], $26::bytea[]) AS r (queue_id, uid, result)
), opened AS (
    INSERT INTO repairs (queue_id, uid, key_id, position, cause, opened)
    SELECT i.queue_id, i.uid, i.key_id, i.position, i.cause, i.ended
    FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $17::timestamptz[])
         AS i (queue_id, uid, key_id, position, state, cause, ended)
    WHERE i.state = 'REPAIR_REQUIRED'
), over AS (
    INSERT INTO ended (queue_id, uid, key_id, position, state, cause, reason, revision, attempt, charged, max_attempts, unknown_attempts,
                       token, report, boundary, accepted, ended, deadline, first_lease, stage, worker, evidence, notes)
    SELECT i.queue_id, i.uid, i.key_id, i.position, i.state, i.cause, i.reason, i.revision, i.attempt, i.charged, i.max_attempts,
           i.unknown_attempts, i.token, i.report, i.boundary, i.accepted, i.ended, i.deadline, i.first_lease, i.stage, i.worker, i.evidence,
           i.notes
    FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::int[], $10::int[],
                $11::int[], $12::int[], $13::bigint[], $14::bigint[], $15::text[], $16::timestamptz[], $17::timestamptz[],
                $18::timestamptz[], $19::timestamptz[], $20::text[], $21::text[], $22::jsonb[], $23::jsonb[])
         AS i (queue_id, uid, key_id, position, state, cause, reason, revision, attempt, charged, max_attempts, unknown_attempts, token,
               report, boundary, accepted, ended, deadline, first_lease, stage, worker, evidence, notes)
), told AS (
    INSERT INTO events (queue_id, uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence)
    SELECT i.queue_id, i.uid, i.revision, i.time, i.kind, i.previous_state, i.state, i.cause, i.attempt, i.token, i.worker, i.evidence
    FROM unnest($28::int[], $29::uuid[], $30::bigint[], $31::timestamptz[], $32::text[], $33::text[], $34::text[], $35::text[],
                $36::int[], $37::bigint[], $38::text[], $39::jsonb[])
         WITH ORDINALITY AS i (queue_id, uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence, ord)
    ORDER BY i.ord
)
SELECT s.queue_id, s.share_id, (s.parked AND s.wake_at IS NULL) AS "parked!", s.max_in_flight IS NOT NULL AS "capped!"
FROM shares s
WHERE s.share_id = ANY ($27::int[])
ORDER BY s.share_id
FOR KEY SHARE OF s
