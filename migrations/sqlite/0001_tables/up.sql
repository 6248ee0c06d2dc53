-- The tables, as in PostgreSQL: times are INTEGER microseconds since 1970 UTC, ids and digests BLOB, text compares byte for
-- byte (BINARY). There are no `writers`: after a failed COMMIT the file is opened again and read.
-- Written for SQLite 3.40 and later, so that the triggers also work in the sqlite3 shell of an older system.

CREATE TABLE workflows (
  name TEXT NOT NULL,
  digest BLOB NOT NULL,
  text TEXT NOT NULL,
  CONSTRAINT workflows_pkey PRIMARY KEY (name),
  CONSTRAINT workflows_name_check CHECK (name GLOB '[a-z]*' AND name NOT GLOB '*[^a-z0-9_-]*' AND length(name) <= 128),
  CONSTRAINT workflows_digest_check CHECK (length(digest) = 32)
) STRICT, WITHOUT ROWID;

CREATE TABLE cases (
  case_id TEXT NOT NULL,
  workflow TEXT NOT NULL,
  status TEXT NOT NULL,
  revision INTEGER NOT NULL,
  version INTEGER NOT NULL,              -- 0 only inside the transaction that opens the case
  data TEXT NOT NULL DEFAULT '{}',       -- JSON: the payload of `open`
  opened_at INTEGER NOT NULL,            -- recorded_at of the case's first operation
  updated_at INTEGER NOT NULL,           -- recorded_at of its last one
  CONSTRAINT cases_pkey PRIMARY KEY (case_id),
  CONSTRAINT cases_case_id_check CHECK (length(case_id) BETWEEN 1 AND 128),
  CONSTRAINT cases_status_check CHECK (status <> ''),
  CONSTRAINT cases_revision_check CHECK (revision BETWEEN 0 AND 9007199254740991),
  CONSTRAINT cases_version_check CHECK (version BETWEEN 0 AND 9007199254740991)
) STRICT, WITHOUT ROWID;

CREATE TABLE assignments (
  case_id TEXT NOT NULL,
  assignee TEXT NOT NULL,
  CONSTRAINT assignments_pkey PRIMARY KEY (case_id, assignee),
  CONSTRAINT assignments_assignee_check CHECK (length(assignee) BETWEEN 1 AND 128)
) STRICT, WITHOUT ROWID;
-- "My cases" is a look-up.
CREATE INDEX assignments_assignee_idx ON assignments (assignee, case_id);

-- The audit trail and the command log. `request` and `outcome` are the bytes that are sent; both NULL: pruned, and the rest
-- of the row stays as a tombstone. With a rowid: its rows are wide, and a clustered key costs a third of the speed.
CREATE TABLE operations (
  case_id TEXT NOT NULL,
  operation_id BLOB NOT NULL,
  version INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  status TEXT NOT NULL,
  recorded_at INTEGER NOT NULL,
  actor TEXT NOT NULL,
  command TEXT NOT NULL,
  digest BLOB,                           -- version byte and SHA-256; NULL for an edit by hand
  request TEXT,
  outcome TEXT,
  CONSTRAINT operations_pkey PRIMARY KEY (case_id, operation_id),
  CONSTRAINT operations_case_id_version_key UNIQUE (case_id, version),
  CONSTRAINT operations_operation_id_check CHECK (length(operation_id) = 16),
  CONSTRAINT operations_version_check CHECK (version >= 1),
  CONSTRAINT operations_revision_check CHECK (revision >= 0),
  CONSTRAINT operations_status_check CHECK (status <> ''),
  CONSTRAINT operations_actor_check CHECK (actor <> ''),
  CONSTRAINT operations_command_check CHECK (command <> ''),
  CONSTRAINT operations_digest_check CHECK (length(digest) = 33),
  CONSTRAINT operations_edit_check CHECK (digest IS NOT NULL OR command = 'edit'),
  CONSTRAINT operations_pruned_check CHECK ((request IS NULL) = (outcome IS NULL))
) STRICT;

-- What the relay has not taken over yet.
CREATE TABLE outbox (
  case_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  operation_id BLOB NOT NULL,
  CONSTRAINT outbox_pkey PRIMARY KEY (case_id, version)
) STRICT, WITHOUT ROWID;
