-- 1 the most rows.
DELETE FROM idempotency_records
WHERE identity IN (
    SELECT identity FROM idempotency_records
    WHERE until_ms <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
    ORDER BY until_ms LIMIT $1
)
