-- 1 the time before which a row may have no lease, 2 the most rows.
DELETE FROM semaphore_locks
WHERE name IN (SELECT name FROM semaphore_locks WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2)
