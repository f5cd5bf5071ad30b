package mirror

import (
	"context"
	"database/sql"
	"strings"

	"github.com/headgate/headgate/internal/sqldb"
	"github.com/headgate/headgate/outbox"
)

var tables = sqldb.Tables{
	Of: "mirror", Version: "headgate_mirror_version", PgMigrate: 0x68676d69_00000001, PgWork: 0x68676d69_00000002,
	MyMigrate: "headgate_mirror_migrate", MyWork: "headgate_mirror", LiteWork: "headgate_mirror_lock",
}

// Migrate brings the tables of a mirror to the newest version. It may be called at every start, also by many at once: one does it. The error
// says where the tables are of a newer release.
func Migrate(ctx context.Context, d outbox.Dialect, db *sql.DB) error {
	return sqldb.Dialect(d).Migrate(ctx, db, &tables, migrations(sqldb.Dialect(d)))
}

// columns are the types of a database, and what ends a table. NAME is that of a tenant or a queue, WORD a short text, TEXT any, TIME and DAY are
// in UTC, NOTED is a time of the database's own.
var columns = map[sqldb.Dialect]*strings.Replacer{
	sqldb.PostgreSQL: strings.NewReplacer("NAME", "text", "WORD", "text", "TEXT", "text", "TIME", "timestamptz", "DAY", "date", "NOTED", "timestamptz", "END", ""),
	sqldb.MySQL: strings.NewReplacer("NAME", "varchar(255)", "WORD", "varchar(64)", "TEXT", "longtext", "TIME", "datetime(6)", "DAY", "date", "NOTED", "datetime(6)",
		"END", " ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
	sqldb.SQLite: strings.NewReplacer("NAME", "TEXT", "WORD", "TEXT", "TEXT", "TEXT", "TIME", "TEXT", "DAY", "TEXT", "NOTED", "INTEGER", "END", ""),
}

// migrations are what each version adds to that before it. One that was released is never changed. On MySQL a CREATE TABLE commits by itself, so
// each statement may be done again.
func migrations(d sqldb.Dialect) [][]string {
	all := [][]string{{
		`CREATE TABLE IF NOT EXISTS headgate_audit (
			part integer NOT NULL, id WORD NOT NULL, at TIME NOT NULL, action WORD NOT NULL, name TEXT NOT NULL, jobs bigint NOT NULL,
			downstream TEXT NOT NULL, lasts_us bigint NOT NULL, from_version bigint NOT NULL, to_version bigint NOT NULL, restored bigint NOT NULL,
			author TEXT NOT NULL, reason TEXT NOT NULL, changes TEXT NOT NULL, act WORD NOT NULL, PRIMARY KEY (part, id))END`,
		`CREATE TABLE IF NOT EXISTS headgate_policy_versions (
			version bigint NOT NULL PRIMARY KEY, at TIME, author TEXT NOT NULL, reason TEXT NOT NULL, restored bigint NOT NULL, document TEXT NOT NULL)END`,
		`CREATE TABLE IF NOT EXISTS headgate_usage (
			day DAY NOT NULL, tenant NAME NOT NULL, queue NAME NOT NULL, jobs bigint NOT NULL, calls bigint NOT NULL, reserved bigint NOT NULL,
			refunded bigint NOT NULL, added bigint NOT NULL, committed bigint NOT NULL, PRIMARY KEY (day, tenant, queue))END`,
		`CREATE TABLE IF NOT EXISTS headgate_transitions (
			part integer NOT NULL, id WORD NOT NULL, at TIME NOT NULL, downstream NAME NOT NULL, from_state WORD NOT NULL, to_state WORD NOT NULL,
			period bigint NOT NULL, cause WORD NOT NULL, reason TEXT NOT NULL, workers integer NOT NULL, callers integer NOT NULL, ends TIME,
			PRIMARY KEY (part, id))END`,
		`CREATE TABLE IF NOT EXISTS headgate_mirror_gaps (
			source WORD NOT NULL, part integer NOT NULL, after_position WORD NOT NULL, lost bigint NOT NULL, reason WORD NOT NULL, noted NOTED NOT NULL,
			PRIMARY KEY (source, part, after_position))END`,
		`CREATE TABLE IF NOT EXISTS headgate_mirror_place (
			source WORD NOT NULL, part integer NOT NULL, position WORD NOT NULL, ordinal bigint NOT NULL, complete NOTED NOT NULL, PRIMARY KEY (source, part))END`,
		`CREATE TABLE IF NOT EXISTS headgate_mirror_of (one integer NOT NULL PRIMARY KEY, prefix NAME NOT NULL, partitions integer NOT NULL)END`,
	}, {
		`CREATE TABLE IF NOT EXISTS headgate_anomalies (
			id WORD NOT NULL PRIMARY KEY, at TIME NOT NULL, kind WORD NOT NULL, of_what WORD NOT NULL, name TEXT NOT NULL, minute TIME NOT NULL,
			rate double precision NOT NULL, usual double precision NOT NULL, deviation double precision NOT NULL, score double precision NOT NULL)END`,
	}}
	switch d {
	case sqldb.SQLite:
		all[0] = append(all[0], `CREATE TABLE headgate_mirror_lock (one INTEGER PRIMARY KEY, who TEXT NOT NULL, until INTEGER NOT NULL)`)
	case sqldb.PostgreSQL, sqldb.MySQL:
	}
	written := make([][]string, len(all))
	for version, statements := range all {
		for _, statement := range statements {
			written[version] = append(written[version], columns[d].Replace(statement))
		}
	}
	return written
}

// insert is the text of an INSERT of a row that may be there: it stays as it is, or with update becomes what it is to be, but for its key, the first
// of the columns. A column with an exclamation mark is the database's time.
func insert(d sqldb.Dialect, table string, update bool, key int, columns ...string) string {
	names, values, sets := make([]string, len(columns)), make([]string, len(columns)), []string{}
	for i, column := range columns {
		name, now := strings.CutSuffix(column, "!")
		if names[i], values[i] = name, "?"; now {
			values[i] = "{now}"
		}
		switch {
		case i < key || !update:
		case d == sqldb.MySQL:
			sets = append(sets, name+" = VALUES("+name+")")
		default:
			sets = append(sets, name+" = excluded."+name)
		}
	}
	if !update {
		sets = []string{names[0] + " = " + table + "." + names[0]}
	}
	text := "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")"
	if d == sqldb.MySQL {
		text += " ON DUPLICATE KEY UPDATE "
	} else {
		text += " ON CONFLICT (" + strings.Join(names[:key], ", ") + ") DO UPDATE SET "
	}
	return d.Text(text + strings.Join(sets, ", "))
}
