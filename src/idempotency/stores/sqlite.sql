-- Answers of the idempotency layer. `until_ms`, in milliseconds since 1970: the end of the lease or, with a response, of
-- its lifetime.
CREATE TABLE IF NOT EXISTS idempotency_records (
  identity BLOB NOT NULL PRIMARY KEY CHECK (length(identity) = 32),
  fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 72),
  token BLOB NOT NULL CHECK (length(token) = 16),
  until_ms INTEGER NOT NULL,
  response BLOB
) STRICT;
CREATE INDEX IF NOT EXISTS idempotency_records_until_idx ON idempotency_records (until_ms);
