-- When autovacuum comes, table by table. Its defaults go by a table's size: the larger the history, the longer dead rows lie, and the longer
-- each visit takes. Here a visit costs about the same however large a table has become. (live has its settings since 0001: all that
-- changes is there, and dead rows lie in the way of claims, so it comes after 2,000 of them, and does not rest.)

-- A few rows that transactions rewrite all the time: whoever looks steps over their dead versions, and cleaning them is a matter of a page.
-- The tag of a share is in an index, so its versions lie there too.
ALTER TABLE dispatch SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE rooms SET (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE shares SET (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE retention_marks SET (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE forgotten SET (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Rows that change now and then, or only come and go.
ALTER TABLE queues SET (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 100);
ALTER TABLE subjects SET (autovacuum_vacuum_scale_factor = 0.1);
ALTER TABLE ordering_keys SET (autovacuum_vacuum_scale_factor = 0.1);
ALTER TABLE repairs SET (autovacuum_vacuum_scale_factor = 0.1);
ALTER TABLE repair_actions SET (autovacuum_vacuum_scale_factor = 0.1);
ALTER TABLE lineage SET (autovacuum_vacuum_threshold = 100);

-- Rows that are written once. By default it would come when a fifth has been added, and then read a fifth of a history of years; in parts of
-- half a million it finds them in memory still, and marks their pages as seen by all, so that the next visit passes over them. What
-- retention deletes is cleared away when it is a twentieth: each such visit reads the indexes whole.
ALTER TABLE tasks SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE payloads SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE results SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE ended SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE task_subjects SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE receipts SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000, autovacuum_vacuum_scale_factor = 0.05);

-- The log likewise, partition by partition: a partitioned table has no such settings, so those that are made later are made with them.
CREATE OR REPLACE FUNCTION ensure_event_partitions() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    width   CONSTANT bigint := 5000000;
    current bigint;
    made    integer := 0;
    low     bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(7233, 1);
    SELECT last_value / width INTO current FROM positions;
    FOR n IN current .. current + 2 LOOP
        low := n * width;
        IF to_regclass('events_' || n) IS NULL THEN
            EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES FROM (%s) TO (%s)
                            WITH (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000,
                                  autovacuum_vacuum_scale_factor = 0.05)', 'events_' || n, low, low + width);
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END $$;
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT i.inhrelid::regclass AS name FROM pg_inherits i WHERE i.inhparent = 'events'::regclass LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000,
                                            autovacuum_vacuum_scale_factor = 0.05)', one.name);
    END LOOP;
    -- Replaced functions have lost what 0006 gave them.
    EXECUTE format('ALTER FUNCTION ensure_event_partitions() SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
END $$;
