-- 1 name, 2 owner, 3 lease. The clock is read again when the row had to be waited for.
UPDATE semaphore_locks SET
    holders = holders || jsonb_build_object($2::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $3),
    expires_at = greatest(expires_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $3)
WHERE name = $1 AND (holders ->> $2)::bigint > extract(epoch FROM clock_timestamp()) * 1000000
