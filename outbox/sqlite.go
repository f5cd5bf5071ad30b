package outbox

import "github.com/headgate/headgate/internal/sqldb"

var liteNow = sqldb.SQLite.Now()

var sqlite = grammar{
	dialect: sqldb.SQLite,
	table:   `headgate_outbox`, sent: plainSent, drop: plainDrop,
	redrive: []string{
		`INSERT INTO headgate_outbox (id, tenant, job) SELECT id, tenant, job FROM headgate_outbox_dead WHERE ? = '' OR reason = ? ORDER BY seq`,
		`DELETE FROM headgate_outbox_dead WHERE ? = '' OR reason = ?`,
	},
	migrations: [][]string{{
		// AUTOINCREMENT gives no number twice, so that of a dead row is no other's.
		`CREATE TABLE headgate_outbox (
			seq INTEGER PRIMARY KEY AUTOINCREMENT,
			id TEXT NOT NULL,
			tenant TEXT NOT NULL,
			job TEXT NOT NULL,
			created INTEGER NOT NULL DEFAULT (` + liteNow + `),
			sent INTEGER,
			not_before INTEGER,
			attempts INTEGER NOT NULL DEFAULT 0,
			reason TEXT NOT NULL DEFAULT ''
		)`,
		`CREATE INDEX headgate_outbox_held ON headgate_outbox (not_before, tenant) WHERE not_before IS NOT NULL`,
		`CREATE TABLE headgate_outbox_dead (
			seq INTEGER PRIMARY KEY,
			id TEXT NOT NULL,
			tenant TEXT NOT NULL,
			job TEXT NOT NULL,
			created INTEGER NOT NULL,
			died INTEGER NOT NULL DEFAULT (` + liteNow + `),
			attempts INTEGER NOT NULL,
			reason TEXT NOT NULL
		)`,
		`CREATE TABLE headgate_outbox_relay (one INTEGER PRIMARY KEY, who TEXT NOT NULL, until INTEGER NOT NULL)`,
	}},
}
