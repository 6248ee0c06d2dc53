DROP TABLE outbox;
DROP TABLE operations;
DROP TABLE assignments;
DROP TABLE cases;
DROP TABLE workflows;
