-- gates_for_floors.sql: takes the gates of queues whose floors a Submit goes by: shared, or alone where it raises one.
-- In the submit transaction, after its shares and before the clock; the floors are read in a later statement.
SELECT CASE WHEN i.alone THEN pg_advisory_xact_lock($1, i.queue_id) ELSE pg_advisory_xact_lock_shared($1, i.queue_id) END AS "locked!: ()"
FROM (SELECT g.queue_id, g.alone FROM unnest($2::int[], $3::boolean[]) AS g (queue_id, alone) ORDER BY g.queue_id) AS i
