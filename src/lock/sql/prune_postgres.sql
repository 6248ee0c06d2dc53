-- 1 how long a row is kept after its last lease, 2 the most rows. Looked at again once it is locked: a lock that is being
-- taken stays.
DELETE FROM semaphore_locks
WHERE name IN (
    SELECT name FROM semaphore_locks
    WHERE expires_at < extract(epoch FROM clock_timestamp()) * 1000000 - $1
    ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED
)
