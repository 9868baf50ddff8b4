-- write_events.sql: adds to the log, in the order in which things happened.
-- Last in the claim and transition transactions. The position is drawn by the insert.
INSERT INTO events (queue_id, uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence)
SELECT i.queue_id, i.uid, i.revision, i.time, i.kind, i.previous_state, i.state, i.cause, i.attempt, i.token, i.worker, i.evidence
FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int[],
            $10::bigint[], $11::text[], $12::jsonb[])
     WITH ORDINALITY AS i (queue_id, uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence, ord)
ORDER BY i.ord
