-- log_end.sql: the position of the last event that is visible; of an empty log, where it begins.
-- Alone. Looks at the end of each partition's primary key.
SELECT greatest((SELECT max(e.position) FROM events e), log_kept_after(0)) AS "position!"
