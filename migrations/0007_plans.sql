-- Indexes that leave the planner no choice. One that begins with queue_id fits every question about tasks of a queue, and where statistics
-- say that there are no such tasks, or one, it looks as good as the right one: an ANALYZE of an almost empty table, or none, and each
-- claim walks the whole queue until the next. Tasks, shares, keys and claims have numbers that are unique by themselves, so what is asked by
-- those is asked without the queue, and nothing else fits.
-- In the order in which those write that are at work meanwhile: they wait.
LOCK TABLE tasks, ordering_keys, shares, live, ended, repairs;
DROP INDEX live_ready_by_share;
CREATE INDEX live_ready_by_share ON live (share_id, rank, position) WHERE state = 'READY';
DROP INDEX live_waiting_by_share;
CREATE INDEX live_waiting_by_share ON live (share_id) WHERE state IN ('SCHEDULED', 'BLOCKED', 'RETRY_AT');
DROP INDEX live_by_key;
CREATE INDEX live_by_key ON live (key_id, position) WHERE key_id IS NOT NULL;
DROP INDEX live_one_head_per_key;
CREATE UNIQUE INDEX live_one_head_per_key ON live (key_id) WHERE key_id IS NOT NULL AND state <> 'BLOCKED';
DROP INDEX live_by_claim;
CREATE INDEX live_by_claim ON live (claim_id) WHERE claim_id IS NOT NULL;
DROP INDEX ended_by_key;
CREATE INDEX ended_by_key ON ended (key_id, position) WHERE key_id IS NOT NULL;
-- Beside repairs_that_hold_a_key, along which all held keys of a queue are walked.
CREATE INDEX repairs_by_key ON repairs (key_id, position) WHERE state = 'OPEN' AND key_id IS NOT NULL;
ALTER TABLE shares DROP CONSTRAINT shares_pkey, ADD PRIMARY KEY (share_id);
ALTER TABLE ordering_keys DROP CONSTRAINT ordering_keys_pkey, ADD PRIMARY KEY (key_id);
ALTER TABLE tasks DROP CONSTRAINT tasks_pkey, ADD PRIMARY KEY (uid);
