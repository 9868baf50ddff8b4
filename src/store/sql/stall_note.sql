-- stall_note.sql: notes that a queue's fleet had stalled by $2: what was silent then ends uncharged.
-- Alone, before the leases are ended. Probes the primary key.
UPDATE queues SET stalled = $2::timestamptz WHERE queue_id = $1 AND (stalled IS NULL OR stalled < $2)
