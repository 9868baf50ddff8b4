-- The database's identity, so that a failover that took back commits is noticed; and what a role that owns nothing needs to run a server.

-- Which database this was when it last handed out numbers: a standby that is promoted (or a backup that is restored) begins a new
-- timeline, and another cluster has another system identifier. Its sequences may be behind what had been handed out before.
CREATE TABLE lineage (
    one_row           boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    system_identifier bigint NOT NULL,
    timeline          text NOT NULL
);
INSERT INTO lineage (system_identifier, timeline)
SELECT c.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system() c;

-- Makes all numbers leap if this is another database than it was; whether it did. To be called outside of any transaction, so that the
-- leap is committed before anybody draws again; many may call at once, and one of them leaps. The leap is wider than what a standby can
-- lag behind, and narrower than the partitions of the log that lie ahead. The numbers of queues leap too: servers remember them, and
-- what they remember of a queue that was lost must not name another one.
CREATE FUNCTION follow_lineage() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    leap       CONSTANT bigint := 1048576;
    queue_leap CONSTANT bigint := 1024;
    identifier bigint;
    current    text;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'the database is a standby' USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    PERFORM FROM lineage FOR UPDATE;
    SELECT c.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8) INTO identifier, current FROM pg_control_system() c;
    IF EXISTS (SELECT FROM lineage l WHERE l.system_identifier = identifier AND l.timeline = current) THEN
        RETURN false;
    END IF;
    -- First the leap, which no rollback takes back, then the word that it was made.
    PERFORM setval('fencing_tokens', last_value + leap) FROM fencing_tokens;
    PERFORM setval('positions', last_value + leap) FROM positions;
    PERFORM setval('queues_queue_id_seq', last_value + queue_leap) FROM queues_queue_id_seq;
    PERFORM ensure_event_partitions();
    INSERT INTO lineage (system_identifier, timeline) VALUES (identifier, current)
    ON CONFLICT (one_row) DO UPDATE SET system_identifier = excluded.system_identifier, timeline = excluded.timeline;
    RETURN true;
END $$;

-- What only the owner of the tables may do, a server does through these functions: they run with their owner's rights, look only into
-- this schema, and are nobody's to call who was not given them.
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT p.oid::regprocedure AS name FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
          AND p.proname IN ('ensure_event_partitions', 'drop_forgotten_event_partitions', 'follow_lineage')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', one.name, current_schema());
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', one.name);
    END LOOP;
END $$;
