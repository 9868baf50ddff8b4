-- What people do with repairs, what retention erases, and the stalls of a queue's fleet.

ALTER TABLE queues
    -- The latest moment at which most of the queue's leases were found silent together. Absent: never.
    ADD COLUMN stalled timestamptz;

ALTER TABLE repairs
    ADD COLUMN updated      timestamptz,
    ADD COLUMN resolved     timestamptz,
    ADD COLUMN resolved_by  text NOT NULL DEFAULT '',
    ADD COLUMN reason       text NOT NULL DEFAULT '',
    ADD COLUMN receipt_ref  text NOT NULL DEFAULT '',
    -- The new task, in the same queue.
    ADD COLUMN replayed_by  uuid,
    ADD COLUMN last_refusal text NOT NULL DEFAULT '',
    ADD CONSTRAINT repairs_are_open_until_resolved CHECK ((state = 'OPEN') = (resolved IS NULL)),
    ADD CONSTRAINT repairs_replayed_have_a_replay CHECK ((state = 'REPLAYED') = (replayed_by IS NOT NULL)),
    ADD CONSTRAINT repairs_confirmed_have_a_receipt CHECK ((state = 'CONFIRMED') = (receipt_ref <> ''));
DROP INDEX repairs_open;
CREATE INDEX repairs_open_by_age ON repairs (queue_id, opened, uid) WHERE state = 'OPEN';
CREATE INDEX repairs_by_age ON repairs (queue_id, opened, uid);
CREATE INDEX repairs_by_resolution ON repairs (queue_id, resolved, uid) WHERE state <> 'OPEN';

-- Who did what with a repair, and why; insert-only.
CREATE TABLE repair_actions (
    queue_id integer NOT NULL,
    uid      uuid NOT NULL,
    number   bigint GENERATED ALWAYS AS IDENTITY,
    time     timestamptz NOT NULL,
    action   text NOT NULL CHECK (action IN ('ASSIGNED', 'REPLAYED', 'DISCARDED', 'CONFIRMED', 'REFUSED')),
    actor    text NOT NULL,
    reason   text NOT NULL,
    -- The owner, the new task's id, the receipt, or the refusal.
    detail   text NOT NULL,
    PRIMARY KEY (queue_id, uid, number)
);

-- Retention walks what has ended in the order in which it ended. Repairs are walked by their resolution instead.
CREATE INDEX ended_by_time ON ended (queue_id, ended, uid) WHERE state <> 'REPAIR_REQUIRED';

-- How far retention has come: everything that ended up to this place has been erased. A hint that only spares the walk.
CREATE TABLE retention_marks (
    queue_id integer NOT NULL,
    what     text NOT NULL CHECK (what IN ('PAYLOAD', 'RESULT', 'REPAIR_PAYLOAD')),
    ended    timestamptz NOT NULL,
    uid      uuid NOT NULL,
    PRIMARY KEY (queue_id, what)
);

-- Drops partitions of the log that hold nothing any more; how many. One whole partition stays empty between the oldest number in use
-- and what is dropped, so that no transaction still carries a number of it. Whoever holds the log for longer than a moment makes it
-- give up: writers queue behind the lock that it asks for.
CREATE FUNCTION drop_forgotten_event_partitions() RETURNS integer LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    width   CONSTANT bigint := 5000000;
    current bigint;
    dropped integer := 0;
    used    boolean;
    part    record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7233, 2) THEN
        RETURN 0;
    END IF;
    SELECT last_value / width INTO current FROM positions;
    FOR part IN
        SELECT c.relname::text AS name
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'events'::regclass AND substring(c.relname FROM 'events_(\d+)$')::bigint < current - 1
        ORDER BY substring(c.relname FROM 'events_(\d+)$')::bigint
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', part.name) INTO used;
        IF NOT used THEN
            EXECUTE format('ALTER TABLE events DETACH PARTITION %I', part.name);
            EXECUTE format('DROP TABLE %I', part.name);
            dropped := dropped + 1;
        END IF;
    END LOOP;
    RETURN dropped;
EXCEPTION
    WHEN lock_not_available THEN
        RETURN 0;
END $$;
