-- Floors in force, and receipts.

-- When the floor last changed.
ALTER TABLE subjects ADD COLUMN updated timestamptz NOT NULL DEFAULT 'epoch';
ALTER TABLE subjects ALTER COLUMN updated DROP DEFAULT;
-- From when on the loop walks over the stale tasks that a call has left; absent: none is left that would have to be canceled or told.
ALTER TABLE subjects ADD COLUMN walk_due timestamptz;
CREATE INDEX subjects_to_walk ON subjects (walk_due) WHERE walk_due IS NOT NULL;

-- Evidence that came apart from a task's state. Insert-only.
CREATE TABLE receipts (
    queue_id    integer NOT NULL,
    uid         uuid NOT NULL,
    kind        text NOT NULL,
    receipt_ref text NOT NULL,
    effect_ref  text NOT NULL,
    -- By the reporter's clock; absent: not told.
    occurred    timestamptz,
    recorded    timestamptz NOT NULL,
    -- Of its event, so that receipts have the order in which they came.
    revision    bigint NOT NULL,
    CONSTRAINT receipts_one_per_ref PRIMARY KEY (queue_id, uid, kind, receipt_ref)
);
