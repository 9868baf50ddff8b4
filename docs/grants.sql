-- What the role `leasehold_server` needs to run `leasehold serve --no-migrate` on a database that another role migrates. Run it as that
-- other role, in that database, after the first `leasehold migrate`; later migrations need no other grants.
GRANT USAGE ON SCHEMA public TO leasehold_server;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO leasehold_server;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO leasehold_server;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO leasehold_server;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO leasehold_server;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO leasehold_server;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT EXECUTE ON FUNCTIONS TO leasehold_server;
