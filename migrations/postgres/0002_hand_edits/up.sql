-- Someone who edits `cases` or `assignments` by hand is a writer like any other: the triggers turn the edit into an
-- operation of its own (command `edit`, actor `sql:<user>`), with its version and its outbox row. The committer marks its
-- own transaction with the local setting casework.writer = 'on' and is not counted twice.
--
-- Whoever sets that mark or disables triggers gets round all of this; `verify` sees it.

-- Names that the command log can carry: the rules of case ids and people in commands.
CREATE FUNCTION casework_check_name(p_what text, p_name text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  IF char_length(p_name) NOT BETWEEN 1 AND 128 OR p_name IN ('.', '..') OR p_name ~ '[\u0001-\u001f\u007f-\u009f]'
     OR (p_what = 'assignee' AND starts_with(p_name, 'sql:')) THEN
    RAISE EXCEPTION '% % is refused', p_what, quote_literal(p_name)
      USING ERRCODE = 'check_violation', HINT = '1 to 128 characters, no control characters, not "." or "..", no assignee "sql:..."';
  END IF;
END $$;

-- The parts of a case that a person may write. Returns the data as the text to store: normalised when it changed.
CREATE FUNCTION casework_check_case(p_workflow text, p_status text, p_data text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_data jsonb; BEGIN
  IF NOT EXISTS (SELECT FROM workflows WHERE name = p_workflow) THEN
    RAISE EXCEPTION 'workflow % is not stored', quote_literal(p_workflow) USING ERRCODE = 'foreign_key_violation';
  END IF;
  IF p_status !~ '^[a-z][a-z0-9_-]{0,127}$' THEN
    RAISE EXCEPTION 'status % is refused', quote_literal(p_status) USING ERRCODE = 'check_violation', HINT = '[a-z][a-z0-9_-]*, at most 128 characters';
  END IF;
  v_data := p_data::jsonb;
  IF jsonb_typeof(v_data) <> 'object' OR jsonb_path_exists(v_data, '$.**{60 to last}')
     OR jsonb_path_exists(v_data, '$.** ? (@.type() == "number" && (@ > 9007199254740991 || @ < -9007199254740991))') THEN
    RAISE EXCEPTION 'data is refused' USING ERRCODE = 'check_violation', HINT = 'a JSON object, at most 60 levels deep, numbers within 2^53 - 1';
  END IF;
  RETURN v_data::text;
END $$;

-- Records one edit: the operation and its outbox row. p_at is the one time that the edit has.
CREATE FUNCTION casework_record(c cases, p_at timestamptz, p_change text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_operation_id uuid := gen_random_uuid(); v_actor text := 'sql:' || session_user; BEGIN
  INSERT INTO operations (case_id, operation_id, version, revision, status, recorded_at, actor, command, digest, request, outcome)
  VALUES (c.case_id, v_operation_id, c.version, c.revision, c.status, p_at, v_actor, 'edit', NULL, p_change,
    '{"case_id":' || to_json(c.case_id) || ',"operation_id":"' || v_operation_id || '","command":"edit","actor":' || to_json(v_actor)
    || ',"status":' || to_json(c.status) || ',"revision":' || c.revision || ',"version":' || c.version
    || ',"recorded_at":"' || to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"}');
  INSERT INTO outbox (case_id, version, operation_id) VALUES (c.case_id, c.version, v_operation_id);
END $$;

-- Case edits. A person's own version and times are not taken; a change of workflow, status or data raises the revision.
CREATE FUNCTION casework_cases_edit() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE v_set text; BEGIN
  IF TG_OP = 'INSERT' AND TG_WHEN = 'BEFORE' THEN
    PERFORM casework_check_name('case_id', NEW.case_id);
    NEW.data := casework_check_case(NEW.workflow, NEW.status, NEW.data);
    NEW.version := 1; NEW.opened_at := clock_timestamp(); NEW.updated_at := NEW.opened_at;
    RETURN NEW;
  END IF;
  IF TG_OP = 'INSERT' THEN                                   -- AFTER: the row is really there (ON CONFLICT DO NOTHING is no edit)
    PERFORM casework_record(NEW, NEW.opened_at, '{"table":"cases","insert":{"workflow":' || to_json(NEW.workflow)
      || ',"status":' || to_json(NEW.status) || ',"revision":' || NEW.revision || ',"data":' || NEW.data || '}}');
    RETURN NULL;
  END IF;
  NEW.version := OLD.version; NEW.opened_at := OLD.opened_at; NEW.updated_at := OLD.updated_at;
  IF NEW.data <> OLD.data AND NEW.data::jsonb = OLD.data::jsonb THEN NEW.data := OLD.data; END IF;  -- the same value, spelt otherwise
  IF NEW IS NOT DISTINCT FROM OLD THEN RETURN NEW; END IF;    -- no change, no edit
  IF NEW.case_id <> OLD.case_id OR NEW.revision < OLD.revision THEN
    RAISE EXCEPTION 'case_id stays, revision does not go down' USING ERRCODE = 'restrict_violation';
  END IF;
  IF (NEW.workflow, NEW.status, NEW.data) IS DISTINCT FROM (OLD.workflow, OLD.status, OLD.data) THEN
    IF NEW.data = OLD.data THEN
      PERFORM casework_check_case(NEW.workflow, NEW.status, '{}');
    ELSE
      NEW.data := casework_check_case(NEW.workflow, NEW.status, NEW.data);
    END IF;
    NEW.revision := greatest(NEW.revision, OLD.revision + 1);
  END IF;
  v_set := concat_ws(',',
    CASE WHEN NEW.workflow <> OLD.workflow THEN '"workflow":' || to_json(NEW.workflow) END,
    CASE WHEN NEW.status <> OLD.status THEN '"status":' || to_json(NEW.status) END,
    CASE WHEN NEW.revision <> OLD.revision THEN '"revision":' || NEW.revision END,
    CASE WHEN NEW.data <> OLD.data THEN '"data":' || NEW.data END);
  NEW.version := OLD.version + 1; NEW.updated_at := clock_timestamp();
  PERFORM casework_record(NEW, NEW.updated_at, '{"table":"cases","set":{' || v_set || '}}');
  RETURN NEW;
END $$;

CREATE FUNCTION casework_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION '% on % is refused', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

-- The case is locked before the new row exists: the order of the committer, so that the two do not deadlock. (A DELETE
-- locks its row before any trigger can run: against an unassign of that very row it may end in a deadlock; send it again.)
CREATE FUNCTION casework_assignments_lock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM 1 FROM cases WHERE case_id = NEW.case_id FOR UPDATE;
  RETURN NEW;
END $$;

-- Assignment edits raise the version of their case, not its revision.
CREATE FUNCTION casework_assignments_edit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE c cases; v_at timestamptz := clock_timestamp(); v_change text; BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF NEW.case_id <> OLD.case_id THEN RAISE EXCEPTION 'case_id stays' USING ERRCODE = 'restrict_violation'; END IF;
    IF NEW.assignee = OLD.assignee THEN RETURN NULL; END IF;
  END IF;
  IF TG_OP <> 'DELETE' THEN PERFORM casework_check_name('assignee', NEW.assignee); END IF;
  PERFORM set_config('casework.writer', 'on', true);         -- this one update of the case is ours
  UPDATE cases SET version = version + 1, updated_at = v_at WHERE case_id = coalesce(NEW.case_id, OLD.case_id) RETURNING * INTO c;
  PERFORM set_config('casework.writer', '', true);
  IF c.case_id IS NULL THEN RAISE EXCEPTION 'no such case' USING ERRCODE = 'foreign_key_violation'; END IF;
  v_change := concat_ws(',', '"delete":' || to_json(OLD.assignee), '"insert":' || to_json(NEW.assignee));
  PERFORM casework_record(c, v_at, '{"table":"assignments",' || v_change || '}');
  RETURN NULL;
END $$;

-- Pruning is the one change of an operation that is let through: request and outcome become NULL.
CREATE FUNCTION casework_operations_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.request IS NULL AND NEW.outcome IS NULL THEN
    OLD.request := NULL; OLD.outcome := NULL;
    IF NEW IS NOT DISTINCT FROM OLD THEN RETURN NEW; END IF;
  END IF;
  RAISE EXCEPTION 'operations stay as they are' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER cases_edit BEFORE INSERT OR UPDATE ON cases FOR EACH ROW
  WHEN (current_setting('casework.writer', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION casework_cases_edit();
CREATE TRIGGER cases_insert AFTER INSERT ON cases FOR EACH ROW
  WHEN (current_setting('casework.writer', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION casework_cases_edit();
CREATE TRIGGER cases_refuse BEFORE DELETE OR TRUNCATE ON cases FOR EACH STATEMENT EXECUTE FUNCTION casework_refuse();

CREATE TRIGGER assignments_lock BEFORE INSERT ON assignments FOR EACH ROW
  WHEN (current_setting('casework.writer', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION casework_assignments_lock();
CREATE TRIGGER assignments_edit AFTER INSERT OR UPDATE OR DELETE ON assignments FOR EACH ROW
  WHEN (current_setting('casework.writer', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION casework_assignments_edit();
CREATE TRIGGER assignments_refuse BEFORE TRUNCATE ON assignments FOR EACH STATEMENT EXECUTE FUNCTION casework_refuse();

CREATE TRIGGER operations_keep BEFORE UPDATE ON operations FOR EACH ROW EXECUTE FUNCTION casework_operations_keep();
CREATE TRIGGER operations_refuse BEFORE DELETE OR TRUNCATE ON operations FOR EACH STATEMENT EXECUTE FUNCTION casework_refuse();

-- A workflow that is stored keeps its text: cases depend on it. A changed one takes a new name.
CREATE TRIGGER workflows_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON workflows FOR EACH STATEMENT EXECUTE FUNCTION casework_refuse();

-- Epochs do not go down: a row that came back at an old epoch would let old batches through.
CREATE TRIGGER writers_up BEFORE UPDATE ON writers FOR EACH ROW
  WHEN (NEW.epoch <= OLD.epoch OR NEW.writer_id <> OLD.writer_id) EXECUTE FUNCTION casework_refuse();
