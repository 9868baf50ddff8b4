-- naive_hold.sql: locks a leased task, if the lease still is this one.
-- First in the naive Complete. Probes the primary key.
SELECT l.position, l.revision, l.attempt, l.charged, l.max_attempts, l.accepted, l.deadline, l.first_lease, l.worker
FROM live l
WHERE l.queue_id = $1 AND l.uid = $2 AND l.token = $3 AND l.state = 'LEASED' AND l.lease_expire > app_now()
FOR UPDATE OF l
