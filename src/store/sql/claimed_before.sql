-- claimed_before.sql: the leases that an earlier call with the same request_id was given; the clock, read later, says which last.
-- In the claim transaction, after the claim ids were locked in an earlier statement. Probes live_by_claim.
SELECT l.queue_id, l.uid, l.share_id, l.key_id, l.position, l.state, l.revision, l.attempt, l.charged, l.max_attempts,
       l.releases, l.unknown_attempts, l.token, l.report, l.rank, l.cost, l.size, l.wake AS "wake: Timestamp",
       l.deadline AS "deadline: Timestamp", l.worker, l.lease_begin AS "lease_begin: Timestamp",
       l.lease_expire AS "lease_expire: Timestamp", l.lease_us, l.stage, l.effect_ref,
       l.effect_begun AS "effect_begun: Timestamp", l.reports_effect, l.heartbeat AS "heartbeat: Timestamp", l.call_id,
       l.claim_id, l.cancel_cause, l.cancel_reason, l.accepted AS "accepted: Timestamp", l.updated AS "updated: Timestamp",
       l.first_lease AS "first_lease: Timestamp", l.notes AS "notes: Json<Notes>"
FROM live l
WHERE l.queue_id = $1 AND l.claim_id = ANY ($2::uuid[]) AND l.state = 'LEASED'
ORDER BY l.queue_id, l.uid
FOR UPDATE OF l
