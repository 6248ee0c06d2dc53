-- Bearer tokens. The token itself is shown once and never stored: only its SHA-256 is.
CREATE TABLE api_tokens (
  id uuid NOT NULL,
  token_sha256 bytea NOT NULL,
  subject text COLLATE "C" NOT NULL,
  roles text NOT NULL,                   -- names separated by commas
  created_at timestamptz NOT NULL,
  expires_at timestamptz,                -- NULL: does not expire
  revoked_at timestamptz,                -- NULL: in force
  CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
  CONSTRAINT api_tokens_token_sha256_key UNIQUE (token_sha256),
  CONSTRAINT api_tokens_token_sha256_check CHECK (octet_length(token_sha256) = 32),
  CONSTRAINT api_tokens_subject_check CHECK (char_length(subject) BETWEEN 1 AND 128)
);
