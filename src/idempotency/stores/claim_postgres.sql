-- 1 identity, 2 fingerprint, 3 token, 4 lease in ms. One row that is not new: what is there and lives. One that is: the claim.
-- None: somebody else claimed since this statement began, and is to be looked for again.
WITH clock AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), found AS MATERIALIZED (
    SELECT fingerprint, token, until_ms - clock.now AS left_ms, response
    FROM idempotency_records, clock WHERE identity = $1 AND until_ms > clock.now
), claimed AS (
    INSERT INTO idempotency_records AS held (identity, fingerprint, token, until_ms)
    SELECT $1, $2, $3, clock.now + $4 FROM clock WHERE NOT EXISTS (SELECT FROM found)
    ON CONFLICT (identity) DO UPDATE SET
        fingerprint = excluded.fingerprint, token = excluded.token, until_ms = excluded.until_ms, response = NULL
    -- The clock again: the row may have been waited for.
    WHERE held.until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    RETURNING held.fingerprint, held.token
)
SELECT fingerprint, token, left_ms, response, false AS is_new FROM found
UNION ALL SELECT fingerprint, token, 0::bigint, NULL::bytea, true FROM claimed
