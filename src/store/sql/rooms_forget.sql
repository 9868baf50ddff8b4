-- rooms_forget.sql: forgets what room a queue (share 0) or shares had: their limit changes, or they go. The next one counts again.
-- With the queue's door held alone, or with the shares locked. Probes the primary key.
DELETE FROM rooms r WHERE r.queue_id = $1 AND r.share_id = ANY ($2::int[])
