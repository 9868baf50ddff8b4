-- Where the log begins for those who follow it.

-- What retention has taken out of the middle of the log: of this queue, events up to and including `position` may be gone. Whoever erases
-- events of a queue raises its row first, or in the same transaction, and never lowers it: who reads the log looks here after each page.
-- Partitions that are dropped as a whole need no row: what is left of them says where the log begins.
CREATE TABLE forgotten (
    queue_id integer PRIMARY KEY,
    position bigint NOT NULL CHECK (position >= 0)
);

-- The lowest cursor after which every event of the queue is kept still.
CREATE FUNCTION log_kept_after(of_queue integer) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT greatest(
        0,
        (SELECT f.position FROM forgotten f WHERE f.queue_id = of_queue),
        (SELECT min(substring(c.relname FROM '^events_(\d+)$')::bigint) * 5000000 - 1
         FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'events'::regclass AND NOT i.inhdetachpending))
$$;
