-- Someone who edits `cases` or `assignments` by hand is a writer like any other: the triggers turn the edit into an
-- operation of its own (command `edit`, actor `sql:local`), with its version and its outbox row.
--
-- There is no session setting here, and none is needed: while the committer works on a case, its operations are *ahead* of
-- `cases.version` (it writes operations first and the case last); at rest they never are. A change with no operation ahead
-- is a person's. 'now' is one time for the whole statement, triggers included.

-- A view as a procedure: records one edit of a case. The second one makes sure that id and time are drawn once.
CREATE VIEW casework_edit (case_id, revision, change) AS SELECT NULL, NULL, NULL WHERE 0;
CREATE VIEW casework_edit_as (case_id, revision, change, operation_id, at) AS SELECT NULL, NULL, NULL, NULL, NULL WHERE 0;

CREATE TRIGGER casework_edit_do INSTEAD OF INSERT ON casework_edit BEGIN
  INSERT INTO casework_edit_as (case_id, revision, change, operation_id, at) VALUES (NEW.case_id, NEW.revision, NEW.change,
    CAST(randomblob(6) || substr(x'404142434445464748494a4b4c4d4e4f', 1 + (random() & 15), 1) || randomblob(1)
      || substr(x'808182838485868788898a8b8c8d8e8f', 1 + (random() & 15), 1) || randomblob(7) AS BLOB),
    CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000);
END;

CREATE TRIGGER casework_edit_as_do INSTEAD OF INSERT ON casework_edit_as BEGIN
  INSERT INTO operations (case_id, operation_id, version, revision, status, recorded_at, actor, command, digest, request, outcome)
    SELECT c.case_id, NEW.operation_id, c.version + 1, NEW.revision, c.status, NEW.at, 'sql:local', 'edit', NULL, NEW.change,
      '{"case_id":' || json_quote(c.case_id)
      || ',"operation_id":"' || lower(substr(hex(NEW.operation_id), 1, 8) || '-' || substr(hex(NEW.operation_id), 9, 4) || '-' || substr(hex(NEW.operation_id), 13, 4)
      || '-' || substr(hex(NEW.operation_id), 17, 4) || '-' || substr(hex(NEW.operation_id), 21)) || '","command":"edit","actor":"sql:local","status":' || json_quote(c.status)
      || ',"revision":' || NEW.revision || ',"version":' || (c.version + 1)
      || ',"recorded_at":"' || strftime('%Y-%m-%dT%H:%M:', NEW.at / 1000000, 'unixepoch') || printf('%02d.%06d', NEW.at / 1000000 % 60, NEW.at % 1000000) || 'Z"}'
    FROM cases c WHERE c.case_id = NEW.case_id;
  INSERT INTO outbox (case_id, version, operation_id) SELECT case_id, version + 1, NEW.operation_id FROM cases WHERE case_id = NEW.case_id;
  UPDATE cases SET version = version + 1, revision = NEW.revision, updated_at = NEW.at WHERE case_id = NEW.case_id;
END;

-- What a person may write into a case: a stored workflow, a name as status, an object as data that the command log can carry.
CREATE TRIGGER cases_check BEFORE UPDATE ON cases
WHEN NEW.version = OLD.version AND (NEW.workflow, NEW.status, NEW.data) IS NOT (OLD.workflow, OLD.status, OLD.data) BEGIN
  SELECT RAISE(ABORT, 'workflow is not stored') WHERE NOT EXISTS (SELECT 1 FROM workflows WHERE name = NEW.workflow);
  SELECT RAISE(ABORT, 'status is refused: [a-z][a-z0-9_-]*, at most 128 characters')
    WHERE NEW.status NOT GLOB '[a-z]*' OR NEW.status GLOB '*[^a-z0-9_-]*' OR length(NEW.status) > 128;
  SELECT RAISE(ABORT, 'data is refused: a JSON object')
    WHERE NEW.data <> OLD.data AND CASE WHEN json_valid(NEW.data) THEN json_type(NEW.data) <> 'object' ELSE 1 END;
  SELECT RAISE(ABORT, 'data is refused: NUL, surrogate escapes, a member twice, more than 60 levels, or a number beyond 2^53 - 1')
    WHERE NEW.data <> OLD.data AND (NEW.data GLOB '*\u0000*' OR NEW.data GLOB '*\u[dD][89abABcdefCDEF]*'
      OR EXISTS (SELECT 1 FROM json_tree(NEW.data) GROUP BY parent, key HAVING count(*) > 1)
      OR EXISTS (SELECT 1 FROM json_tree(NEW.data) WHERE length(fullkey) - length(replace(replace(fullkey, '.', ''), '[', '')) > 60
        OR type IN ('integer', 'real') AND atom NOT BETWEEN -9007199254740991 AND 9007199254740991));
END;

-- Case edits. A change of workflow, status or data raises the revision.
CREATE TRIGGER cases_edit AFTER UPDATE ON cases
WHEN NEW.version = OLD.version AND ((NEW.workflow, NEW.status, NEW.revision) IS NOT (OLD.workflow, OLD.status, OLD.revision) OR json(NEW.data) <> json(OLD.data)) BEGIN
  INSERT INTO casework_edit (case_id, revision, change)
    SELECT NEW.case_id, r.revision, '{"table":"cases","set":{' || substr(
        CASE WHEN NEW.workflow <> OLD.workflow THEN ',"workflow":' || json_quote(NEW.workflow) ELSE '' END
        || CASE WHEN NEW.status <> OLD.status THEN ',"status":' || json_quote(NEW.status) ELSE '' END
        || CASE WHEN r.revision <> OLD.revision THEN ',"revision":' || r.revision ELSE '' END
        || CASE WHEN json(NEW.data) <> json(OLD.data) THEN ',"data":' || json(NEW.data) ELSE '' END, 2) || '}}'
    FROM (SELECT max(NEW.revision, OLD.revision + ((NEW.workflow, NEW.status) IS NOT (OLD.workflow, OLD.status) OR json(NEW.data) <> json(OLD.data))) AS revision) r;
END;

CREATE TRIGGER cases_keep BEFORE UPDATE ON cases
WHEN NEW.case_id <> OLD.case_id OR NEW.opened_at <> OLD.opened_at OR NEW.revision < OLD.revision
  OR NEW.version = OLD.version AND NEW.updated_at <> OLD.updated_at
  OR NEW.version < OLD.version
  OR NEW.version > OLD.version AND NOT EXISTS (SELECT 1 FROM operations WHERE case_id = NEW.case_id AND version = NEW.version) BEGIN
  SELECT RAISE(ABORT, 'case_id, version and times are not written by hand, revision does not go down');
END;

-- `INSERT OR REPLACE` would remove the row that is there without asking any trigger.
CREATE TRIGGER cases_replace BEFORE INSERT ON cases WHEN EXISTS (SELECT 1 FROM cases WHERE case_id = NEW.case_id) BEGIN
  SELECT RAISE(ABORT, 'the case is there already');
END;
CREATE TRIGGER cases_insert AFTER INSERT ON cases
WHEN NEW.version <> 0 OR NOT EXISTS (SELECT 1 FROM operations WHERE case_id = NEW.case_id AND version = 1) BEGIN
  SELECT RAISE(ABORT, 'a case is opened by the command open');
END;
CREATE TRIGGER cases_delete BEFORE DELETE ON cases BEGIN SELECT RAISE(ABORT, 'cases and their history stay'); END;

-- Assignment edits raise the version of their case, not its revision.
CREATE TRIGGER assignments_insert AFTER INSERT ON assignments
WHEN NOT EXISTS (SELECT 1 FROM cases c JOIN operations o ON o.case_id = c.case_id AND o.version = c.version + 1 WHERE c.case_id = NEW.case_id) BEGIN
  SELECT RAISE(ABORT, 'no such case') WHERE NOT EXISTS (SELECT 1 FROM cases WHERE case_id = NEW.case_id);
  SELECT RAISE(ABORT, 'assignee is refused: 1 to 128 characters, no control characters, not "." or "..", not "sql:..."')
    WHERE NEW.assignee IN ('.', '..') OR NEW.assignee GLOB 'sql:*' OR NEW.assignee GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
      OR instr(CAST(NEW.assignee AS BLOB), x'00') > 0;
  INSERT INTO casework_edit (case_id, revision, change)
    SELECT case_id, revision, '{"table":"assignments","insert":' || json_quote(NEW.assignee) || '}' FROM cases WHERE case_id = NEW.case_id;
END;
CREATE TRIGGER assignments_delete AFTER DELETE ON assignments
WHEN NOT EXISTS (SELECT 1 FROM cases c JOIN operations o ON o.case_id = c.case_id AND o.version = c.version + 1 WHERE c.case_id = OLD.case_id) BEGIN
  INSERT INTO casework_edit (case_id, revision, change)
    SELECT case_id, revision, '{"table":"assignments","delete":' || json_quote(OLD.assignee) || '}' FROM cases WHERE case_id = OLD.case_id;
END;
CREATE TRIGGER assignments_update BEFORE UPDATE ON assignments BEGIN
  SELECT RAISE(ABORT, 'an assignment is deleted and inserted, not updated');
END;

-- Pruning is the one change of an operation that is let through: request and outcome become NULL.
CREATE TRIGGER operations_keep BEFORE UPDATE ON operations
WHEN NEW.request IS NOT NULL OR NEW.outcome IS NOT NULL
  OR (NEW.case_id, NEW.operation_id, NEW.version, NEW.revision, NEW.status, NEW.recorded_at, NEW.actor, NEW.command, NEW.digest)
    IS NOT (OLD.case_id, OLD.operation_id, OLD.version, OLD.revision, OLD.status, OLD.recorded_at, OLD.actor, OLD.command, OLD.digest) BEGIN
  SELECT RAISE(ABORT, 'operations stay as they are');
END;
CREATE TRIGGER operations_delete BEFORE DELETE ON operations BEGIN SELECT RAISE(ABORT, 'operations stay as they are'); END;
-- `INSERT OR REPLACE` would remove the row that is there without asking any trigger.
CREATE TRIGGER operations_replace BEFORE INSERT ON operations
WHEN EXISTS (SELECT 1 FROM operations WHERE case_id = NEW.case_id AND operation_id = NEW.operation_id)
  OR EXISTS (SELECT 1 FROM operations WHERE case_id = NEW.case_id AND version = NEW.version) BEGIN
  SELECT RAISE(ABORT, 'an operation with this id or version is there already');
END;

-- A workflow that is stored keeps its text: cases depend on it. A changed one takes a new name.
CREATE TRIGGER workflows_update BEFORE UPDATE ON workflows BEGIN SELECT RAISE(ABORT, 'a stored workflow stays as it is'); END;
CREATE TRIGGER workflows_delete BEFORE DELETE ON workflows BEGIN SELECT RAISE(ABORT, 'a stored workflow stays as it is'); END;
CREATE TRIGGER workflows_replace BEFORE INSERT ON workflows
WHEN EXISTS (SELECT 1 FROM workflows WHERE name = NEW.name AND (digest, text) IS NOT (NEW.digest, NEW.text)) BEGIN
  SELECT RAISE(ABORT, 'a stored workflow stays as it is');
END;
