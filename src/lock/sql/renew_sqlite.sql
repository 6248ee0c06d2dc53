-- 1 name, 2 owner, 3 now, 4 lease.
UPDATE semaphore_locks SET
    holders = json_set(holders, '$."' || ?2 || '"', ?3 + ?4),
    expires_at = max(expires_at, ?3 + ?4)
WHERE name = ?1 AND holders ->> ?2 > ?3
