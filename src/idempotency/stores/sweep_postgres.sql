-- 1 the most rows. `statement_timestamp()`, for the index could not be used with a clock that goes on within the statement.
DELETE FROM idempotency_records
WHERE until_ms <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint AND identity IN (
    SELECT identity FROM idempotency_records
    WHERE until_ms <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
    ORDER BY until_ms LIMIT $1
    FOR UPDATE SKIP LOCKED
)
