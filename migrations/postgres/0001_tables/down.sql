DROP FUNCTION casework_case_version(text);
DROP TABLE outbox;
DROP TABLE operations;
DROP TABLE assignments;
DROP TABLE cases;
DROP TABLE writers;
DROP TABLE workflows;
