package outbox

import "github.com/headgate/headgate/internal/sqldb"

var postgresql = grammar{
	dialect: sqldb.PostgreSQL,
	table:   `headgate_outbox`, sent: plainSent, drop: plainDrop,
	redrive: []string{`WITH back AS (DELETE FROM headgate_outbox_dead WHERE ? = '' OR reason = ? RETURNING seq, id, tenant, job)
		INSERT INTO headgate_outbox (id, tenant, job) SELECT id, tenant, job FROM back ORDER BY seq`},
	migrations: [][]string{{
		`CREATE TABLE headgate_outbox (
			seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			id text NOT NULL,
			tenant text NOT NULL,
			job text NOT NULL,
			created timestamptz NOT NULL DEFAULT now(),
			sent timestamptz,
			not_before timestamptz,
			attempts integer NOT NULL DEFAULT 0,
			reason text NOT NULL DEFAULT ''
		) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)`,
		`CREATE INDEX headgate_outbox_held ON headgate_outbox (not_before, tenant) WHERE not_before IS NOT NULL`,
		`CREATE TABLE headgate_outbox_dead (
			seq bigint PRIMARY KEY,
			id text NOT NULL,
			tenant text NOT NULL,
			job text NOT NULL,
			created timestamptz NOT NULL,
			died timestamptz NOT NULL DEFAULT now(),
			attempts integer NOT NULL,
			reason text NOT NULL
		)`,
	}},
}
