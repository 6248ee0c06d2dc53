-- 1 name, 2 owner, 3 now. The row stays for its number, and goes with the last lease that is left.
UPDATE semaphore_locks SET
    holders = json_remove(holders, '$."' || ?2 || '"'),
    expires_at = (
        SELECT max(?3, coalesce(max(holder.value), 0)) FROM json_each(semaphore_locks.holders) AS holder
        WHERE holder.key <> ?2
    )
WHERE name = ?1 AND holders ->> ?2 > ?3
