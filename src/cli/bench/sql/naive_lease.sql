-- naive_lease.sql: leases the picked task under a new token.
-- Second in the naive Claim. Probes the primary key.
UPDATE live l
SET state = 'LEASED', revision = l.revision + 1, attempt = l.attempt + 1, charged = l.charged + 1, token = nextval('fencing_tokens'),
    worker = $3, lease_begin = now.at, lease_expire = least(now.at + interval '30 seconds', l.deadline), lease_us = 30000000,
    due = least(now.at + interval '30 seconds', l.deadline), stage = 'CLAIMED', reports_effect = true, call_id = $4, updated = now.at,
    first_lease = coalesce(l.first_lease, now.at)
FROM (SELECT app_now() AS at OFFSET 0) AS now
WHERE l.queue_id = $1 AND l.uid = $2
RETURNING l.token, l.attempt, l.revision, l.lease_expire
