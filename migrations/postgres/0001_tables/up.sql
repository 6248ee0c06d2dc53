-- The tables. Every key leads with case_id and compares byte for byte (COLLATE "C"), so that a distributed PostgreSQL can
-- place the rows of a case together. No foreign keys: the commit writes only what belongs together, and `verify` proves it.

CREATE TABLE workflows (
  name text COLLATE "C" NOT NULL,
  digest bytea NOT NULL,
  text text NOT NULL,
  CONSTRAINT workflows_pkey PRIMARY KEY (name),
  CONSTRAINT workflows_name_check CHECK (name ~ '^[a-z][a-z0-9_-]{0,127}$'),
  CONSTRAINT workflows_digest_check CHECK (octet_length(digest) = 32)
);

-- One row for each committing connection. A batch reads its row FOR SHARE and requires its own epoch; raising the epoch
-- waits for a batch that still runs and makes any that arrives later do nothing. Half-filled pages keep the updates HOT.
CREATE TABLE writers (
  writer_id text COLLATE "C" NOT NULL,
  node text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  CONSTRAINT writers_pkey PRIMARY KEY (writer_id),
  CONSTRAINT writers_epoch_check CHECK (epoch >= 1)
) WITH (fillfactor = 50);

-- No index on a column that a commit changes: the updates stay HOT, and half-filled pages keep room for them.
CREATE TABLE cases (
  case_id text COLLATE "C" NOT NULL,
  workflow text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  revision bigint NOT NULL,
  version bigint NOT NULL,
  data text NOT NULL DEFAULT '{}',       -- JSON: the payload of `open`
  opened_at timestamptz NOT NULL,        -- recorded_at of the case's first operation
  updated_at timestamptz NOT NULL,       -- recorded_at of its last one
  CONSTRAINT cases_pkey PRIMARY KEY (case_id),
  CONSTRAINT cases_case_id_check CHECK (char_length(case_id) BETWEEN 1 AND 128),
  CONSTRAINT cases_status_check CHECK (status <> ''),
  CONSTRAINT cases_revision_check CHECK (revision BETWEEN 0 AND 9007199254740991),
  CONSTRAINT cases_version_check CHECK (version BETWEEN 1 AND 9007199254740991)
) WITH (fillfactor = 50);

CREATE TABLE assignments (
  case_id text COLLATE "C" NOT NULL,
  assignee text COLLATE "C" NOT NULL,
  CONSTRAINT assignments_pkey PRIMARY KEY (case_id, assignee),
  CONSTRAINT assignments_assignee_check CHECK (char_length(assignee) BETWEEN 1 AND 128)
);
-- "My cases" is a look-up.
CREATE INDEX assignments_assignee_idx ON assignments (assignee, case_id);

-- The audit trail and the command log. `request` and `outcome` are the bytes that are sent (text, never jsonb, which
-- reorders); both NULL: pruned, and the rest of the row stays as a tombstone.
CREATE TABLE operations (
  case_id text COLLATE "C" NOT NULL,
  operation_id uuid NOT NULL,
  version bigint NOT NULL,
  revision bigint NOT NULL,
  status text COLLATE "C" NOT NULL,
  recorded_at timestamptz NOT NULL,
  actor text COLLATE "C" NOT NULL,
  command text COLLATE "C" NOT NULL,
  digest bytea,                          -- version byte and SHA-256; NULL for an edit by hand
  request text,
  outcome text,
  CONSTRAINT operations_pkey PRIMARY KEY (case_id, operation_id),
  CONSTRAINT operations_case_id_version_key UNIQUE (case_id, version),
  CONSTRAINT operations_version_check CHECK (version >= 1),
  CONSTRAINT operations_revision_check CHECK (revision >= 0),
  CONSTRAINT operations_status_check CHECK (status <> ''),
  CONSTRAINT operations_actor_check CHECK (actor <> ''),
  CONSTRAINT operations_command_check CHECK (command <> ''),
  CONSTRAINT operations_digest_check CHECK (octet_length(digest) = 33),
  CONSTRAINT operations_edit_check CHECK (digest IS NOT NULL OR command = 'edit'),
  CONSTRAINT operations_pruned_check CHECK ((request IS NULL) = (outcome IS NULL))
);

-- What the relay has not taken over yet.
CREATE TABLE outbox (
  case_id text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  operation_id uuid NOT NULL,
  CONSTRAINT outbox_pkey PRIMARY KEY (case_id, version)
);

-- A function, and VOLATILE: it reads with a snapshot of its own, taken when it is called. The commit tells with it which
-- version a case has that its own snapshot does not show yet.
CREATE FUNCTION casework_case_version(p_case_id text) RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT version FROM cases WHERE case_id = p_case_id $$;
