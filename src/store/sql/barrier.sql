-- barrier.sql: a small commit of its own that must reach the disk: everything that committed before it is durable with it.
-- Alone, or behind the COMMIT of a claim in the same message. It has to write something to the log: a commit that only has a transaction id is not waited for.
SELECT pg_logical_emit_message(true, 'leasehold', '')::text AS "position!"
