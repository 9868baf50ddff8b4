-- claim_pick.sql: locks the next READY tasks of a share, by rank, then in order of acceptance; passes over what others hold.
-- In the claim transaction. Walks live_ready_by_share from the low mark ($4, $5) on; $2 are overdue tasks that were picked before and wait for the due loop.
SELECT l.queue_id, l.uid, l.share_id, l.key_id, l.position, l.state, l.revision, l.attempt, l.charged, l.max_attempts,
       l.releases, l.unknown_attempts, l.token, l.report, l.rank, l.cost, l.size, l.wake AS "wake: Timestamp",
       l.deadline AS "deadline: Timestamp", l.worker, l.lease_begin AS "lease_begin: Timestamp",
       l.lease_expire AS "lease_expire: Timestamp", l.lease_us, l.stage, l.effect_ref,
       l.effect_begun AS "effect_begun: Timestamp", l.reports_effect, l.heartbeat AS "heartbeat: Timestamp", l.call_id,
       l.claim_id, l.cancel_cause, l.cancel_reason, l.accepted AS "accepted: Timestamp", l.updated AS "updated: Timestamp",
       l.first_lease AS "first_lease: Timestamp", l.notes AS "notes: Json<Notes>"
FROM live l
WHERE l.share_id = $1 AND l.state = 'READY' AND l.uid <> ALL ($2::uuid[])
  AND (l.rank, l.position) >= ($4, $5)
ORDER BY l.rank, l.position
LIMIT $3
FOR UPDATE OF l SKIP LOCKED
