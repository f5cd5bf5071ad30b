-- What the first release with an outbox made of an empty PostgreSQL. It is never changed.
CREATE TABLE headgate_outbox_version (version integer PRIMARY KEY);
INSERT INTO headgate_outbox_version VALUES (1);
CREATE TABLE headgate_outbox (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id text NOT NULL,
	tenant text NOT NULL,
	job text NOT NULL,
	created timestamptz NOT NULL DEFAULT now(),
	sent timestamptz,
	not_before timestamptz,
	attempts integer NOT NULL DEFAULT 0,
	reason text NOT NULL DEFAULT ''
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX headgate_outbox_held ON headgate_outbox (not_before, tenant) WHERE not_before IS NOT NULL;
CREATE TABLE headgate_outbox_dead (
	seq bigint PRIMARY KEY,
	id text NOT NULL,
	tenant text NOT NULL,
	job text NOT NULL,
	created timestamptz NOT NULL,
	died timestamptz NOT NULL DEFAULT now(),
	attempts integer NOT NULL,
	reason text NOT NULL
);
INSERT INTO headgate_outbox (id, tenant, job) VALUES ('one', 'acme', '{"ID":"one","Tenant":"acme","Queue":"mail","Type":"send","Priority":"medium","Deadline":"0001-01-01T00:00:00Z","Cost":1,"Downstream":"","MaxAttempts":0,"Timeout":0,"RunAt":"0001-01-01T00:00:00Z","Delay":0,"Unique":{"Key":"","For":0,"Release":""},"Payload":"e30=","Headers":null}');
INSERT INTO headgate_outbox (id, tenant, job, sent) VALUES ('two', 'acme', '{"ID":"one","Tenant":"acme","Queue":"mail","Type":"send","Priority":"medium","Deadline":"0001-01-01T00:00:00Z","Cost":1,"Downstream":"","MaxAttempts":0,"Timeout":0,"RunAt":"0001-01-01T00:00:00Z","Delay":0,"Unique":{"Key":"","For":0,"Release":""},"Payload":"e30=","Headers":null}', now() - interval '1 hour');
