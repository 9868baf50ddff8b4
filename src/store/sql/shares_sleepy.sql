-- shares_sleepy.sql: locks shares in which a claim found nothing, or nothing that may run; passes over those that somebody is waking, or
-- of which somebody is ending a lease.
-- In the claim transaction, before shares_sleep and shares_park. Probes the primary key.
SELECT s.share_id FROM shares s
WHERE s.queue_id = $1 AND s.share_id = ANY ($2::int[]) AND s.ready AND NOT s.parked
ORDER BY s.share_id
FOR UPDATE OF s SKIP LOCKED
