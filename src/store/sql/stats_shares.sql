-- stats_shares.sql: what the dispatch knows of some shares.
-- In the read transaction of a count. Probes the primary key.
SELECT s.share_id, s.fairness_key, s.weight, s.tag
FROM shares s
WHERE s.share_id = ANY ($1::int[])
