-- claim_restamp.sql: makes a repeated call the holder of the leases it is answered with.
-- In the claim transaction, after claimed_before locked them. Probes the primary key.
UPDATE live l SET call_id = i.call_id
FROM (SELECT i.call_id, h.at FROM unnest($1::int[], $2::uuid[], $3::uuid[]) AS i (queue_id, uid, call_id)
      CROSS JOIN LATERAL (SELECT l.ctid AS at FROM live l WHERE l.queue_id = i.queue_id AND l.uid = i.uid OFFSET 0) AS h) AS i
WHERE l.ctid = i.at
