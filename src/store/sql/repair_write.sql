-- repair_write.sql: writes what an action made of a repair, and who acted and why.
-- After repair_lock, in the same transaction. Probes the primary key.
WITH acted AS (
    INSERT INTO repair_actions (queue_id, uid, time, action, actor, reason, detail)
    VALUES ($1, $2, $9::timestamptz, $10::text, $11::text, $12::text, $13::text)
)
UPDATE repairs r
SET state = $3, owner = $4, next_action = $5, receipt_ref = $6, replayed_by = $7, last_refusal = $8, updated = $9, reason = $12,
    resolved = CASE WHEN $3 = 'OPEN' THEN NULL ELSE $9::timestamptz END,
    resolved_by = CASE WHEN $3 = 'OPEN' THEN '' ELSE $11::text END
WHERE r.queue_id = $1 AND r.uid = $2
