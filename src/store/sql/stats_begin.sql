-- stats_begin.sql: the moment of a count, the queue's virtual time, and the number of the latest event.
-- In a read transaction of its own, first. Probes the primary key of `dispatch`.
SELECT app_now() AS "now!: Timestamp", coalesce(d.virtual_time, 0) AS "virtual_time!", p.last_value AS "position!"
FROM positions p
LEFT JOIN dispatch d ON d.queue_id = $1
