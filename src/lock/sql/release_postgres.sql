-- 1 name, 2 owner. The row stays for its number, and goes with the last lease that is left.
UPDATE semaphore_locks SET
    holders = holders - $2::text,
    expires_at = greatest(
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
        (SELECT max(holder.value::bigint) FROM jsonb_each(holders - $2::text) AS holder)
    )
WHERE name = $1 AND (holders ->> $2)::bigint > extract(epoch FROM clock_timestamp()) * 1000000
