-- Budgets: what queues and shares may have leased at a time, how fast, and how much may be unfinished.

-- A parked share is at its cap or out of tokens: claims pass it by, however long its backlog.
ALTER TABLE shares
    -- Set and cleared by claims and by PutShare; cleared also by whoever ends a lease of a share that is at its cap.
    ADD COLUMN parked boolean NOT NULL DEFAULT false,
    -- When the rate lets its next task go. Absent while parked: a lease has to end first, or the policy to change.
    ADD COLUMN wake_at timestamptz,
    -- The token bucket: so much was in it then. Absent: it is full.
    ADD COLUMN rate_level double precision,
    ADD COLUMN rate_at timestamptz,
    ADD CONSTRAINT shares_sleep_or_are_parked CHECK (ready OR NOT parked),
    ADD CONSTRAINT shares_wake_from_being_parked CHECK (parked OR wake_at IS NULL),
    ADD CONSTRAINT shares_have_a_whole_rate CHECK ((rate_per_second IS NULL) = (rate_burst IS NULL)),
    ADD CONSTRAINT shares_know_when_their_level_was CHECK ((rate_level IS NULL) = (rate_at IS NULL));
DROP INDEX shares_ready_by_tag;
CREATE INDEX shares_awake_by_tag ON shares (queue_id, tag, share_id) WHERE ready AND NOT parked;
CREATE INDEX shares_parked_until ON shares (queue_id, wake_at) WHERE wake_at IS NOT NULL;

-- The queue's own bucket, beside its virtual time: the same row is locked for both.
ALTER TABLE dispatch
    ADD COLUMN rate_level double precision,
    ADD COLUMN rate_at timestamptz,
    ADD CONSTRAINT dispatch_knows_when_its_level_was CHECK ((rate_level IS NULL) = (rate_at IS NULL));
ALTER TABLE queues ADD CONSTRAINT queues_have_a_whole_rate CHECK ((rate_per_second IS NULL) = (rate_burst IS NULL));

-- How many more tasks a queue (share 0) or a share with `max_unfinished` may accept before they are counted again. Lowered by whoever
-- accepts, under the row's lock; never raised but by a count. So it can be too low and never too high.
CREATE TABLE rooms (
    queue_id integer NOT NULL,
    share_id integer NOT NULL,
    room     bigint NOT NULL CHECK (room >= 0),
    -- All that was ever accepted under this row: less what is unfinished, it says how many have finished.
    taken    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue_id, share_id)
) WITH (fillfactor = 10);

-- With live_ready_by_share and live_leased_by_share: all unfinished tasks of a share.
CREATE INDEX live_waiting_by_share ON live (queue_id, share_id) WHERE state IN ('SCHEDULED', 'BLOCKED', 'RETRY_AT');
