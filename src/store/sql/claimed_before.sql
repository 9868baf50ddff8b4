-- claimed_before.sql: the leases that an earlier call with the same request_id was given; the clock, read later, says which last.
-- In the claim transaction, after the claim ids were locked in an earlier statement. Probes live_by_claim and the
-- primary key; the CASE keeps the planner from live_leased_by_share.
SELECT l.queue_id, l.uid, l.share_id, l.key_id, l.position, l.state, l.revision, l.attempt, l.charged, l.max_attempts,
       l.releases, l.unknown_attempts, l.token, l.report, l.rank, l.cost, l.size, l.wake AS "wake: Timestamp",
       l.deadline AS "deadline: Timestamp", l.worker, l.lease_begin AS "lease_begin: Timestamp",
       l.lease_expire AS "lease_expire: Timestamp", l.lease_us, l.stage, l.effect_ref,
       l.effect_begun AS "effect_begun: Timestamp", l.reports_effect, l.heartbeat AS "heartbeat: Timestamp", l.call_id,
       l.claim_id, l.cancel_cause, l.cancel_reason, l.accepted AS "accepted: Timestamp", l.updated AS "updated: Timestamp",
       l.first_lease AS "first_lease: Timestamp", l.notes AS "notes: Json<Notes>"
FROM (SELECT l.queue_id, l.uid
      FROM unnest($1::uuid[]) AS i (claim_id)
      CROSS JOIN LATERAL (SELECT * FROM live l WHERE l.claim_id = i.claim_id OFFSET 0) AS l
      ORDER BY l.queue_id, l.uid) AS i
CROSS JOIN LATERAL (SELECT * FROM live l WHERE l.queue_id = i.queue_id AND l.uid = i.uid AND CASE l.state WHEN 'LEASED' THEN true END FOR UPDATE) AS l
WHERE l.claim_id = ANY ($1)
