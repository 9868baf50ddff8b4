-- claim_lock_picks.sql: locks the picked tasks that are still READY; passes over what others hold.
-- The CASE keeps the planner from live_ready_by_share, which is of no use here. In the claim transaction, after fairness::allot. Probes the primary key.
SELECT l.queue_id, l.uid, l.share_id, l.key_id, l.position, l.state, l.revision, l.attempt, l.charged, l.max_attempts,
       l.releases, l.unknown_attempts, l.token, l.report, l.rank, l.cost, l.size, l.wake AS "wake: Timestamp",
       l.deadline AS "deadline: Timestamp", l.worker, l.lease_begin AS "lease_begin: Timestamp",
       l.lease_expire AS "lease_expire: Timestamp", l.lease_us, l.stage, l.effect_ref,
       l.effect_begun AS "effect_begun: Timestamp", l.reports_effect, l.heartbeat AS "heartbeat: Timestamp", l.call_id,
       l.claim_id, l.cancel_cause, l.cancel_reason, l.accepted AS "accepted: Timestamp", l.updated AS "updated: Timestamp",
       l.first_lease AS "first_lease: Timestamp", l.notes AS "notes: Json<Notes>"
FROM (SELECT i.queue_id, i.uid FROM unnest($1::int[], $2::uuid[]) AS i (queue_id, uid) ORDER BY i.queue_id, i.uid) AS i
CROSS JOIN LATERAL (SELECT * FROM live l WHERE l.queue_id = i.queue_id AND l.uid = i.uid AND CASE l.state WHEN 'READY' THEN true END FOR UPDATE SKIP LOCKED) AS l
