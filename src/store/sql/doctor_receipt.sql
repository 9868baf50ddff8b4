-- doctor_receipt.sql: a receipt has one event, and an event of a receipt its receipt.
-- In the doctor's snapshot. Scans receipts and the log.
SELECT concat(q.name, '/', coalesce(t.task_id, f.uid::text), f.what) AS "finding!", count(*) OVER () AS "count!"
FROM (
    SELECT queue_id, uid, concat(' ', kind, ' ', receipt_ref, CASE WHEN r.here THEN ' has no event' ELSE ' has no receipt' END) AS what
    FROM (SELECT queue_id, uid, revision, kind, receipt_ref, true AS here FROM receipts) r
    FULL JOIN (SELECT queue_id, uid, revision, evidence ->> 'receipt_kind' AS kind, evidence ->> 'receipt_ref' AS receipt_ref, true AS here
               FROM events WHERE kind = 'RECEIPT') e USING (queue_id, uid, revision, kind, receipt_ref)
    WHERE r.here IS NULL OR e.here IS NULL
) AS f
LEFT JOIN queues q USING (queue_id)
LEFT JOIN tasks t USING (queue_id, uid)
ORDER BY 1
LIMIT $1
