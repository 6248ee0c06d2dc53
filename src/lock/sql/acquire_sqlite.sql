-- 1 name, 2 owner, 3 now, 4 lease, 5 permits. No row: others hold all permits.
INSERT INTO semaphore_locks AS lock (name, holders, fencing_number, expires_at)
VALUES (?1, json_object(?2, ?3 + ?4), ?3, ?3 + ?4)
ON CONFLICT (name) DO UPDATE SET
    -- Those whose lease has run out are left out.
    holders = json_patch(
        (SELECT json_group_object(holder.key, holder.value) FROM json_each(lock.holders) AS holder WHERE holder.value > ?3),
        excluded.holders
    ),
    fencing_number = max(lock.fencing_number + 1, excluded.fencing_number),
    expires_at = max(lock.expires_at, excluded.expires_at)
WHERE (
    SELECT count(*) FROM json_each(lock.holders) AS holder WHERE holder.value > ?3 AND holder.key <> ?2
) < ?5
RETURNING fencing_number
