-- Times are microseconds since 1970. `holders`: a JSON object, owner to the end of its lease.
CREATE TABLE IF NOT EXISTS semaphore_locks (
    name text NOT NULL PRIMARY KEY,
    holders text NOT NULL,
    fencing_number integer NOT NULL,
    expires_at integer NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS semaphore_locks_expires_at ON semaphore_locks (expires_at);
