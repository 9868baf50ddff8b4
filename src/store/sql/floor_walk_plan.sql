-- floor_walk_plan.sql: says from when on the loop walks over a floor's stale tasks, or (absent) that none is left; nothing if the floor
-- has risen meanwhile, or if somebody else's walk came to the end.
-- Alone, after a walk. Probes the primary key.
UPDATE subjects f SET walk_due = $5
WHERE f.queue_id = $1 AND f.subject_id = $2 AND f.min_version IS NOT DISTINCT FROM $3 AND f.revoked = $4 AND f.walk_due IS NOT NULL
