-- rooms_write.sql: what room is left, and how many were accepted.
-- In the submit transaction, on rows that it holds. Probes the primary key.
UPDATE rooms r SET room = i.room, taken = r.taken + i.taken
FROM (SELECT i.room, i.taken, h.at
      FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[]) AS i (queue_id, share_id, room, taken)
      CROSS JOIN LATERAL (SELECT r.ctid AS at FROM rooms r WHERE r.queue_id = i.queue_id AND r.share_id = i.share_id OFFSET 0) AS h) AS i
WHERE r.ctid = i.at
