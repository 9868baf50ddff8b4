-- door_lock.sql: takes a queue's door alone: whoever was accepting tasks is done, and nobody accepts one before this transaction ends.
-- In PutQueue's and PutShare's transactions, after the gate, only where a limit on unfinished tasks changes. Touches no table.
SELECT pg_advisory_xact_lock($1, $2) AS "locked!: ()"
