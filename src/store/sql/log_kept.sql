-- log_kept.sql: from where on a queue's log is whole, and the last position that was ever drawn.
-- Alone; for a page of the log, after it. Reads the catalogue and one row.
SELECT log_kept_after($1) AS "kept_after!", p.last_value AS "last!" FROM positions p
