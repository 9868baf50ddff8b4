-- log_holders.sql: the transactions that have drawn a position and are not over.
-- Alone, after the read whose gaps it is to explain. nextval takes this lock before it draws and keeps it to the transaction's end, and a
-- commit is visible before its locks are gone. A database that was copied from this one has the same oid for the sequence: hence the first
-- condition. (Nobody here prepares transactions, whose locks change their holder's name.)
SELECT l.virtualtransaction AS "holder!"
FROM pg_locks l
WHERE l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.locktype = 'relation' AND l.relation = 'positions'::regclass AND l.mode = 'RowExclusiveLock'
