package outbox

import "github.com/headgate/headgate/internal/sqldb"

// Rows are joined to their numbers: by seq IN (…) a small table is read as a whole, in a DELETE even with FORCE INDEX (MariaDB 10.11), and whoever
// reads it waits for each transaction that has put a job in.
var mysql = grammar{
	dialect: sqldb.MySQL,
	table:   `headgate_outbox FORCE INDEX (PRIMARY)`,
	sent:    `UPDATE JSON_TABLE('[%[2]s]', '$[*]' COLUMNS (seq bigint PATH '$')) n STRAIGHT_JOIN headgate_outbox o ON o.seq = n.seq SET o.sent = %[1]s`,
	drop:    `DELETE o FROM JSON_TABLE('[%s]', '$[*]' COLUMNS (seq bigint PATH '$')) n STRAIGHT_JOIN headgate_outbox o ON o.seq = n.seq`,
	// The rows that are copied stay locked until they are deleted, and so do the gaps between them: no row can die unseen in between.
	isolate: `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`,
	redrive: []string{
		`INSERT INTO headgate_outbox (id, tenant, job) SELECT id, tenant, job FROM headgate_outbox_dead WHERE ? = '' OR reason = ? ORDER BY seq`,
		`DELETE FROM headgate_outbox_dead WHERE ? = '' OR reason = ?`,
	},
	// A CREATE TABLE commits by itself, so each statement may be done again.
	migrations: [][]string{{
		`CREATE TABLE IF NOT EXISTS headgate_outbox (
			seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
			id varchar(128) NOT NULL,
			tenant varchar(128) NOT NULL,
			job longtext NOT NULL,
			created datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
			sent datetime(6),
			not_before datetime(6),
			attempts integer NOT NULL DEFAULT 0,
			reason varchar(1000) NOT NULL DEFAULT '',
			KEY headgate_outbox_held (not_before, tenant)
		) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`,
		`CREATE TABLE IF NOT EXISTS headgate_outbox_dead (
			seq bigint NOT NULL PRIMARY KEY,
			id varchar(128) NOT NULL,
			tenant varchar(128) NOT NULL,
			job longtext NOT NULL,
			created datetime(6) NOT NULL,
			died datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
			attempts integer NOT NULL,
			reason varchar(1000) NOT NULL
		) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`,
	}},
}
