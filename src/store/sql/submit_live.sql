-- submit_live.sql: writes new tasks: the live row, the payload, the subjects and the first event.
-- In the submit transaction, last. $15 and on are the payloads, then the subjects. A replay that
-- takes its old place has a first event at another position ($23) than the place.
WITH new_live AS (
    INSERT INTO live (queue_id, uid, share_id, key_id, position, state, revision, attempt, charged, max_attempts, releases,
                      unknown_attempts, token, rank, cost, size, wake, deadline, due, accepted, updated)
    SELECT i.queue_id, i.uid, i.share_id, i.key_id, i.position, i.state, 1, 0, 0, i.max_attempts, 0, 0, 0, i.rank, i.cost, i.size,
           i.wake, i.deadline, i.due, i.accepted, i.accepted
    FROM unnest($1::int[], $2::uuid[], $3::int[], $4::bigint[], $5::bigint[], $6::text[], $7::int[], $8::bigint[], $9::int[],
                $10::int[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::timestamptz[])
         AS i (queue_id, uid, share_id, key_id, position, state, max_attempts, rank, cost, size, wake, deadline, due, accepted)
), new_payloads AS (
    INSERT INTO payloads (queue_id, uid, payload)
    SELECT p.queue_id, p.uid, p.payload FROM unnest($15::int[], $16::uuid[], $17::bytea[]) AS p (queue_id, uid, payload)
), new_subjects AS (
    INSERT INTO task_subjects (queue_id, subject_id, uid, version)
    SELECT s.queue_id, s.subject_id, s.uid, s.version
    FROM unnest($18::int[], $19::text[], $20::uuid[], $21::bigint[]) AS s (queue_id, subject_id, uid, version)
    ON CONFLICT DO NOTHING
)
INSERT INTO events (position, queue_id, uid, revision, time, kind, state, attempt, token, evidence)
SELECT i.position, i.queue_id, i.uid, 1, i.accepted, 'SUBMITTED', i.state, 0, 0, i.evidence
FROM unnest($1::int[], $2::uuid[], $23::bigint[], $6::text[], $14::timestamptz[], $22::jsonb[])
     AS i (queue_id, uid, position, state, accepted, evidence)
