-- 1 name, 2 owner, 3 lease, 4 permits. No row: others hold all permits.
-- The clock is read once, as `fencing_number` of the row that is to be inserted.
INSERT INTO semaphore_locks AS lock (name, holders, fencing_number, expires_at)
SELECT $1, jsonb_build_object($2::text, clock.now + $3), clock.now, clock.now + $3
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS clock
ON CONFLICT (name) DO UPDATE SET
    -- Those whose lease has run out are left out.
    holders = (
        SELECT coalesce(jsonb_object_agg(holder.key, holder.value), '{}') FROM jsonb_each(lock.holders) AS holder
        WHERE holder.value::bigint > excluded.fencing_number
    ) || excluded.holders,
    fencing_number = greatest(lock.fencing_number + 1, excluded.fencing_number),
    expires_at = greatest(lock.expires_at, excluded.expires_at)
WHERE (
    SELECT count(*) FROM jsonb_each(lock.holders - $2::text) AS holder
    WHERE holder.value::bigint > excluded.fencing_number
) < $4
RETURNING fencing_number
