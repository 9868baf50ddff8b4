-- ceiling_claim.sql: leases the next READY tasks, and tells all that their worker is told, in one statement.
-- Alone: a transaction by itself. Walks live_ready_by_share.
WITH now AS MATERIALIZED (SELECT app_now() AS at),
picked AS MATERIALIZED (
    SELECT l.uid FROM live l
    WHERE l.share_id = $2 AND l.state = 'READY'
    ORDER BY l.rank, l.position
    LIMIT $3
    FOR UPDATE OF l SKIP LOCKED
), leased AS (
    UPDATE live l
    SET state = 'LEASED', revision = l.revision + 1, attempt = l.attempt + 1, charged = l.charged + 1, token = nextval('fencing_tokens'),
        worker = $4, lease_begin = now.at, lease_expire = least(now.at + interval '30 seconds', l.deadline), lease_us = 30000000,
        due = least(now.at + interval '30 seconds', l.deadline), stage = 'CLAIMED', reports_effect = true, call_id = $5,
        updated = now.at, first_lease = coalesce(l.first_lease, now.at)
    FROM picked, now
    WHERE l.queue_id = $1 AND l.uid = picked.uid
    RETURNING l.uid, l.token, l.attempt, l.revision, l.lease_expire, l.updated
), logged AS (
    INSERT INTO events (queue_id, uid, revision, time, kind, previous_state, state, attempt, token, worker)
    SELECT $1, uid, revision, updated, 'LEASED', 'READY', 'LEASED', attempt, token, $4 FROM leased
)
SELECT l.uid, l.token, l.attempt, l.lease_expire, t.task_id, t.kind, t.content_type, t.target, t.event_id, t.fairness_key,
       t.ordering_key, t.cost, t.priority, t.subjects, t.labels, t.options, t.digest, p.payload
FROM leased l
JOIN tasks t ON t.queue_id = $1 AND t.uid = l.uid
JOIN payloads p ON p.queue_id = $1 AND p.uid = l.uid
