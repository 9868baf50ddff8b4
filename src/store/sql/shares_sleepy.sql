-- shares_sleepy.sql: locks shares in which a claim found nothing, or nothing that may run; passes over those that somebody is waking, or
-- of which somebody is ending a lease.
-- In the claim transaction, before shares_sleep and shares_park. Probes the primary key; the CASE keeps the
-- planner from shares_awake_by_tag.
SELECT s.share_id FROM shares s
WHERE s.share_id = ANY ($1::int[]) AND CASE WHEN s.ready THEN NOT s.parked END
ORDER BY s.share_id
FOR UPDATE OF s SKIP LOCKED
