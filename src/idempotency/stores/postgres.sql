-- Answers of the idempotency layer. `until_ms`, in milliseconds since 1970 by the database's clock: the end of the lease
-- or, with a response, of its lifetime.
CREATE TABLE IF NOT EXISTS idempotency_records (
  identity bytea NOT NULL PRIMARY KEY CHECK (length(identity) = 32),
  fingerprint bytea NOT NULL CHECK (length(fingerprint) = 72),
  token bytea NOT NULL CHECK (length(token) = 16),
  until_ms bigint NOT NULL,
  response bytea
);
CREATE INDEX IF NOT EXISTS idempotency_records_until_idx ON idempotency_records (until_ms);
