-- 1 how long a row is kept after its last lease, 2 the most rows. Looked at again once it is locked: a lock that is being
-- taken stays. `statement_timestamp()` and one type on both sides, or the index could not be used: a clock that goes on
-- within the statement would have to be read for each row.
DELETE FROM semaphore_locks
WHERE name IN (
    SELECT name FROM semaphore_locks
    WHERE expires_at < (extract(epoch FROM statement_timestamp()) * 1000000)::bigint - $1
    ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED
)
