WITH f AS MATERIALIZED (                 -- the writer fence: this row is locked, or c is empty and nothing below happens
  SELECT epoch FROM writers WHERE writer_id = $1::text AND epoch = $2::bigint FOR SHARE),
c AS MATERIALIZED (                      -- one row per case: its chain as one step
  SELECT t.* FROM f CROSS JOIN unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::text[], $10::timestamptz[], $11::timestamptz[])
    WITH ORDINALITY AS t (case_id, expected, workflow, status, revision, version, data, opened_at, updated_at, i)),
l AS MATERIALIZED (                      -- after f (one-time filter), in key order; set_config marks the writes as the committer's
  SELECT case_id, version FROM cases WHERE case_id = ANY ($3::text[]) AND (SELECT set_config('casework.writer', 'on', true) FROM f) = 'on'
  ORDER BY case_id /*lock*/),
/*rare*/n AS (                                   -- expected 0: open. The ORDER BY also makes all locks come before the first insert
  INSERT INTO cases (case_id, workflow, status, revision, version, data, opened_at, updated_at)
  SELECT c.case_id, c.workflow, c.status, c.revision, c.version, coalesce(c.data, '{}'), c.opened_at, c.updated_at FROM c
  WHERE c.expected = 0 AND NOT EXISTS (SELECT 1 FROM l WHERE l.case_id = c.case_id) AND NOT EXISTS (SELECT 1 FROM cases k WHERE k.case_id = c.case_id)
  ORDER BY c.case_id COLLATE "C" ON CONFLICT (case_id) DO NOTHING RETURNING case_id),/*end*/
u AS (                                   -- after n; compare and swap: on the locked row (l) and on the snapshot's row (k)
  UPDATE cases k SET workflow = coalesce(c.workflow, k.workflow), status = c.status, revision = c.revision, version = c.version,
    data = coalesce(c.data, k.data), updated_at = c.updated_at
  FROM c JOIN l USING (case_id) WHERE k.case_id = c.case_id AND l.version = c.expected AND k.version = c.expected
    /*rare*/AND (SELECT count(*) FROM n) >= 0/*end*/ RETURNING c.i, k.case_id),
won AS MATERIALIZED (SELECT i, case_id FROM u /*rare*/UNION ALL SELECT c.i, c.case_id FROM n JOIN c USING (case_id)/*end*/),
o AS MATERIALIZED (                      -- the operations; i names the case by its place in $3
  SELECT * FROM unnest($12::bigint[], $13::uuid[], $14::bigint[], $15::bigint[], $16::text[], $17::timestamptz[], $18::text[], $19::text[], $20::bytea[], $21::text[], $22::text[])
    AS t (i, operation_id, version, revision, status, recorded_at, actor, command, digest, request, outcome)),
/*rare*/a AS MATERIALIZED (                      -- net effect of the chain: one row per (case, assignee)
  SELECT w.case_id, t.assignee, t.present FROM unnest($23::bigint[], $24::text[], $25::boolean[]) AS t (i, assignee, present) JOIN won w USING (i)),/*end*/
w1 AS (INSERT INTO operations (case_id, operation_id, version, revision, status, recorded_at, actor, command, digest, request, outcome)
  SELECT w.case_id, o.operation_id, o.version, o.revision, o.status, o.recorded_at, o.actor, o.command, o.digest, o.request, o.outcome FROM o JOIN won w USING (i)),
w2 AS (INSERT INTO outbox (case_id, version, operation_id) SELECT w.case_id, o.version, o.operation_id FROM o JOIN won w USING (i))/*rare*/,
w3 AS (INSERT INTO assignments (case_id, assignee) SELECT case_id, assignee FROM a WHERE present ON CONFLICT DO NOTHING),
w4 AS (DELETE FROM assignments x USING a WHERE NOT a.present AND x.case_id = a.case_id AND x.assignee = a.assignee)/*end*/
SELECT c.i, w.i IS NOT NULL AS won,
  CASE WHEN w.i IS NOT NULL THEN c.version WHEN l.case_id IS NOT NULL THEN l.version ELSE coalesce(casework_case_version(c.case_id), 0) END AS version
FROM c LEFT JOIN won w ON w.i = c.i LEFT JOIN l ON l.case_id = c.case_id
/*rare*/UNION ALL                        -- version checks for rejections: no lock, no write
SELECT -t.i, false, coalesce(k.version, 0) FROM f CROSS JOIN unnest($26::text[]) WITH ORDINALITY AS t (case_id, i) LEFT JOIN cases k ON k.case_id = t.case_id/*end*/
UNION ALL                                -- always one row with i = 0: did the fence hold?
SELECT 0, EXISTS (SELECT FROM f), coalesce((SELECT epoch FROM f), 0)
