-- Times are microseconds since 1970. `holders`: an object, owner to the end of its lease.
CREATE TABLE IF NOT EXISTS semaphore_locks (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    holders jsonb NOT NULL,
    fencing_number bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS semaphore_locks_expires_at ON semaphore_locks (expires_at);
