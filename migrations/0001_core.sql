-- The core: queues, shares, ordering keys, tasks, and the log of what became of them.
--
-- Small hot rows, insert-only history, one clock. Every key begins with the queue; queues, shares and keys are integers inside.
-- No foreign keys on hot tables: they would lock a parent row per task. Text with CHECK instead of enums: an enum's values can
-- never be dropped. Row counters are kept nowhere; what is counted can be recounted.

-- The only clock. Tests replace it to move time; nothing else reads one.
CREATE FUNCTION app_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';

CREATE TABLE queues (
    queue_id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                text NOT NULL CONSTRAINT queues_one_per_name UNIQUE,
    boundary            text NOT NULL DEFAULT 'worker_reported',
    paused              boolean NOT NULL DEFAULT false,
    on_unknown          text NOT NULL DEFAULT 'RETRY' CHECK (on_unknown IN ('RETRY', 'REPAIR')),
    on_repair           text NOT NULL DEFAULT 'CONTINUE' CHECK (on_repair IN ('CONTINUE', 'HOLD')),
    max_attempts        integer NOT NULL DEFAULT 3 CHECK (max_attempts BETWEEN 1 AND 10000),
    initial_backoff_us  bigint NOT NULL DEFAULT 1000000 CHECK (initial_backoff_us >= 0),
    max_backoff_us      bigint NOT NULL DEFAULT 600000000 CHECK (max_backoff_us >= 0),
    multiplier          double precision NOT NULL DEFAULT 2 CHECK (multiplier >= 1),
    jitter              double precision NOT NULL DEFAULT 1 CHECK (jitter BETWEEN 0 AND 1),
    default_ttl_us      bigint NOT NULL DEFAULT 86400000000 CHECK (default_ttl_us > 0),
    lease_us            bigint NOT NULL DEFAULT 30000000 CHECK (lease_us >= 1000000),
    priority_step_us    bigint NOT NULL DEFAULT 60000000 CHECK (priority_step_us >= 0),
    deadline_margin_us  bigint NOT NULL DEFAULT 0 CHECK (deadline_margin_us >= 0),
    -- Absent: no limit; 0: nothing may run (or be accepted).
    max_in_flight       integer CHECK (max_in_flight >= 0),
    rate_per_second     double precision CHECK (rate_per_second >= 0),
    rate_burst          integer CHECK (rate_burst >= 0),
    max_unfinished      integer CHECK (max_unfinished >= 0),
    payload_retention_us  bigint CHECK (payload_retention_us >= 0),
    result_retention_us   bigint CHECK (result_retention_us >= 0),
    evidence_retention_us bigint CHECK (evidence_retention_us >= 0),
    etag                bigint NOT NULL DEFAULT 1
);

-- The part of a queue that belongs to one fairness key. The dispatch columns are written only when they decide something.
CREATE TABLE shares (
    queue_id        integer NOT NULL,
    share_id        integer GENERATED ALWAYS AS IDENTITY,
    fairness_key    text NOT NULL,
    weight          double precision NOT NULL DEFAULT 1 CHECK (weight BETWEEN 0.01 AND 1000),
    max_in_flight   integer CHECK (max_in_flight >= 0),
    rate_per_second double precision CHECK (rate_per_second >= 0),
    rate_burst      integer CHECK (rate_burst >= 0),
    max_unfinished  integer CHECK (max_unfinished >= 0),
    -- Virtual start tag of its next dispatch (start-time fair queueing).
    tag             double precision NOT NULL DEFAULT 0,
    -- It may have READY tasks. Set by whoever makes one READY; cleared only by a claim that looked again and found none.
    ready           boolean NOT NULL DEFAULT false,
    etag            bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (queue_id, share_id),
    CONSTRAINT shares_one_per_fairness_key UNIQUE (queue_id, fairness_key)
) WITH (fillfactor = 50);
CREATE INDEX shares_ready_by_tag ON shares (queue_id, tag) WHERE ready;

-- The virtual time of a queue's dispatch, locked while shares are compared. Queues with one active share never touch it.
CREATE TABLE dispatch (
    queue_id     integer PRIMARY KEY,
    virtual_time double precision NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- One row per ordering key, to be locked by whoever adds, ends or unblocks a task of that key.
CREATE TABLE ordering_keys (
    queue_id integer NOT NULL,
    key_id   bigint GENERATED ALWAYS AS IDENTITY,
    key      text NOT NULL,
    PRIMARY KEY (queue_id, key_id),
    CONSTRAINT ordering_keys_one_per_key UNIQUE (queue_id, key)
);

-- The spec of a task without its payload, written once.
CREATE TABLE tasks (
    queue_id     integer NOT NULL,
    uid          uuid NOT NULL,
    task_id      text NOT NULL,
    kind         text NOT NULL,
    content_type text NOT NULL,
    target       text NOT NULL,
    event_id     text NOT NULL,
    fairness_key text NOT NULL,
    ordering_key text NOT NULL,
    cost         integer NOT NULL CHECK (cost BETWEEN 1 AND 1000),
    priority     smallint NOT NULL CHECK (priority BETWEEN -10 AND 10),
    -- [[id, version], …]; absent: about nothing in particular.
    subjects     jsonb,
    labels       jsonb,
    -- Own retry, lease, start, end, derivation and trace context; absent: none of them.
    options      jsonb,
    digest       bytea NOT NULL,
    PRIMARY KEY (queue_id, uid),
    CONSTRAINT tasks_one_per_id UNIQUE (queue_id, task_id)
);
CREATE INDEX tasks_by_event ON tasks (queue_id, event_id, uid) WHERE event_id <> '';
CREATE INDEX tasks_by_target ON tasks (queue_id, target, uid) WHERE target <> '';

CREATE TABLE task_subjects (
    queue_id   integer NOT NULL,
    subject_id text NOT NULL,
    uid        uuid NOT NULL,
    version    bigint NOT NULL,
    PRIMARY KEY (queue_id, subject_id, uid)
);

-- Floors: a task about an older version is stale. Kept as long as task ids.
CREATE TABLE subjects (
    queue_id    integer NOT NULL,
    subject_id  text NOT NULL,
    -- Absent with `revoked`: every version is stale.
    min_version bigint,
    revoked     boolean NOT NULL DEFAULT false,
    reason      text NOT NULL DEFAULT '',
    PRIMARY KEY (queue_id, subject_id)
);

-- Beside the task, so that erasing a payload is a delete.
CREATE TABLE payloads (
    queue_id integer NOT NULL,
    uid      uuid NOT NULL,
    payload  bytea NOT NULL,
    PRIMARY KEY (queue_id, uid)
);
CREATE TABLE results (
    queue_id integer NOT NULL,
    uid      uuid NOT NULL,
    result   bytea NOT NULL,
    PRIMARY KEY (queue_id, uid)
);

-- All that changes of an unfinished task. Deleted when it ends.
CREATE TABLE live (
    queue_id         integer NOT NULL,
    uid              uuid NOT NULL,
    share_id         integer NOT NULL,
    key_id           bigint,
    -- Order of acceptance: the position of its first event.
    position         bigint NOT NULL,
    state            text NOT NULL,
    revision         bigint NOT NULL,
    attempt          integer NOT NULL,
    charged          integer NOT NULL,
    max_attempts     integer NOT NULL,
    releases         integer NOT NULL,
    unknown_attempts integer NOT NULL,
    token            bigint NOT NULL,
    report           bigint,
    rank             bigint NOT NULL,
    cost             integer NOT NULL,
    -- Bytes of the task in a Claim's answer, so that the answer is filled before anything is leased.
    size             integer NOT NULL,
    wake             timestamptz,
    deadline         timestamptz NOT NULL,
    -- The next moment at which time alone changes this row.
    due              timestamptz NOT NULL,
    worker           text,
    lease_begin      timestamptz,
    lease_expire     timestamptz,
    lease_us         bigint,
    stage            text,
    effect_ref       text,
    effect_begun     timestamptz,
    reports_effect   boolean,
    heartbeat        timestamptz,
    call_id          uuid,
    claim_id         uuid,
    cancel_cause     text,
    cancel_reason    text,
    accepted         timestamptz NOT NULL,
    updated          timestamptz NOT NULL,
    first_lease      timestamptz,
    -- Progress and last error: what people read and nothing decides on.
    notes            jsonb,
    PRIMARY KEY (queue_id, uid),
    CONSTRAINT live_is_unfinished CHECK (state IN ('SCHEDULED', 'BLOCKED', 'READY', 'LEASED', 'RETRY_AT')),
    CONSTRAINT live_has_a_lease_exactly_while_leased CHECK (
        CASE WHEN state = 'LEASED'
             THEN num_nulls(worker, lease_begin, lease_expire, lease_us, stage, reports_effect, call_id) = 0
             ELSE num_nonnulls(worker, lease_begin, lease_expire, lease_us, stage, effect_ref, effect_begun, reports_effect,
                               heartbeat, call_id, claim_id, cancel_cause, cancel_reason) = 0
        END),
    CONSTRAINT live_stage_is_known CHECK (stage IN ('CLAIMED', 'EFFECT_BEGUN') AND (stage = 'EFFECT_BEGUN') = (effect_begun IS NOT NULL)),
    CONSTRAINT live_cancel_is_whole CHECK ((cancel_cause IS NULL) = (cancel_reason IS NULL)),
    CONSTRAINT live_waits_for_a_time CHECK (
        CASE state WHEN 'SCHEDULED' THEN wake IS NOT NULL WHEN 'RETRY_AT' THEN wake IS NOT NULL
                   WHEN 'BLOCKED' THEN true ELSE wake IS NULL END),
    CONSTRAINT live_blocked_has_a_key CHECK (state <> 'BLOCKED' OR (key_id IS NOT NULL AND attempt = 0)),
    CONSTRAINT live_leases_have_tokens CHECK ((attempt = 0) = (token = 0)),
    CONSTRAINT live_attempts_stay_in_budget CHECK (charged BETWEEN 0 AND attempt AND charged <= max_attempts AND max_attempts >= 1),
    CONSTRAINT live_lease_ends_by_the_deadline CHECK (lease_expire <= deadline),
    CONSTRAINT live_due_is_the_next_moment CHECK (due = least(deadline, CASE state WHEN 'LEASED' THEN lease_expire
        WHEN 'SCHEDULED' THEN wake WHEN 'RETRY_AT' THEN wake END))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX live_ready_by_share ON live (queue_id, share_id, rank, position) WHERE state = 'READY';
CREATE INDEX live_leased_by_share ON live (queue_id, share_id) WHERE state = 'LEASED';
CREATE INDEX live_by_due ON live (due);
CREATE INDEX live_by_key ON live (queue_id, key_id, position) WHERE key_id IS NOT NULL;
CREATE UNIQUE INDEX live_one_head_per_key ON live (queue_id, key_id) WHERE key_id IS NOT NULL AND state <> 'BLOCKED';
CREATE INDEX live_by_claim ON live (queue_id, claim_id) WHERE claim_id IS NOT NULL;

-- One row per finished task, insert-only: so a look-up, a list by state and a repeated Submit never walk the history.
CREATE TABLE ended (
    queue_id         integer NOT NULL,
    uid              uuid NOT NULL,
    key_id           bigint,
    position         bigint NOT NULL,
    state            text NOT NULL,
    cause            text,
    reason           text NOT NULL,
    revision         bigint NOT NULL,
    attempt          integer NOT NULL,
    charged          integer NOT NULL,
    max_attempts     integer NOT NULL,
    unknown_attempts integer NOT NULL,
    token            bigint NOT NULL,
    report           bigint,
    boundary         text NOT NULL,
    accepted         timestamptz NOT NULL,
    ended            timestamptz NOT NULL,
    deadline         timestamptz NOT NULL,
    first_lease      timestamptz,
    stage            text,
    worker           text,
    evidence         jsonb,
    notes            jsonb,
    PRIMARY KEY (queue_id, uid),
    CONSTRAINT ended_is_terminal CHECK (state IN ('COMPLETED', 'SKIPPED', 'CANCELED', 'REPAIR_REQUIRED')),
    CONSTRAINT ended_proves_only_when_completed CHECK (state = 'COMPLETED' OR boundary = ''),
    CONSTRAINT ended_repairs_and_cancels_have_a_cause CHECK ((cause IS NOT NULL) = (state IN ('CANCELED', 'REPAIR_REQUIRED')))
);
-- Most tasks are completed; lists of the others must not walk past those.
CREATE INDEX ended_otherwise_by_state ON ended (queue_id, state, uid) WHERE state <> 'COMPLETED';
CREATE INDEX ended_by_key ON ended (queue_id, key_id, position) WHERE key_id IS NOT NULL;

-- What REPAIR_REQUIRED tasks leave for people.
CREATE TABLE repairs (
    queue_id    integer NOT NULL,
    uid         uuid NOT NULL,
    key_id      bigint,
    position    bigint NOT NULL,
    cause       text NOT NULL,
    state       text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'REPLAYED', 'DISCARDED', 'CONFIRMED')),
    owner       text NOT NULL DEFAULT '',
    next_action text NOT NULL DEFAULT '',
    opened      timestamptz NOT NULL,
    PRIMARY KEY (queue_id, uid)
);
CREATE INDEX repairs_open ON repairs (queue_id, opened) WHERE state = 'OPEN';
CREATE INDEX repairs_that_hold_a_key ON repairs (queue_id, key_id, position) WHERE state = 'OPEN' AND key_id IS NOT NULL;

-- Tokens rise with every claim, positions with every event. CACHE 1: numbers are drawn in the order in which they are handed out.
CREATE SEQUENCE fencing_tokens AS bigint CACHE 1;
CREATE SEQUENCE positions AS bigint CACHE 1;

-- The log, insert-only. A partition goes as a whole when nothing in it is needed any more.
CREATE TABLE events (
    position       bigint NOT NULL DEFAULT nextval('positions'),
    queue_id       integer NOT NULL,
    uid            uuid NOT NULL,
    revision       bigint NOT NULL,
    time           timestamptz NOT NULL,
    kind           text NOT NULL,
    previous_state text,
    state          text NOT NULL,
    cause          text,
    attempt        integer NOT NULL,
    token          bigint NOT NULL,
    worker         text,
    evidence       jsonb,
    PRIMARY KEY (position)
) PARTITION BY RANGE (position);
CREATE INDEX events_by_task ON events (queue_id, uid, revision);

-- Makes the partitions that the next numbers will need: the one in use and two ahead. Called when a server starts and by its
-- loop, on any number of servers; the lock makes them take turns.
CREATE FUNCTION ensure_event_partitions() RETURNS integer LANGUAGE plpgsql AS $$
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
            EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES FROM (%s) TO (%s)', 'events_' || n, low, low + width);
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END $$;
SELECT ensure_event_partitions();
