-- Bearer tokens. The token itself is shown once and never stored: only its SHA-256 is.
CREATE TABLE api_tokens (
  id BLOB NOT NULL,
  token_sha256 BLOB NOT NULL,
  subject TEXT NOT NULL,
  roles TEXT NOT NULL,                   -- names separated by commas
  created_at INTEGER NOT NULL,
  expires_at INTEGER,                    -- NULL: does not expire
  revoked_at INTEGER,                    -- NULL: in force
  CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
  CONSTRAINT api_tokens_token_sha256_key UNIQUE (token_sha256),
  CONSTRAINT api_tokens_id_check CHECK (length(id) = 16),
  CONSTRAINT api_tokens_token_sha256_check CHECK (length(token_sha256) = 32),
  CONSTRAINT api_tokens_subject_check CHECK (length(subject) BETWEEN 1 AND 128)
) STRICT, WITHOUT ROWID;
