package outbox

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Names of GET_LOCK are the server's, so they have the database in them; they have 64 characters at most.
const (
	myMigrateLock = `CONCAT('headgate_migrate.', SHA1(DATABASE()))`
	myRelayLock   = `CONCAT('headgate_relay.', SHA1(DATABASE()))`
	// myLockSeconds is how long a migration waits for another.
	myLockSeconds = "30"
)

// Rows are joined to their numbers: by seq IN (…) a small table is read as a whole, in a DELETE even with FORCE INDEX (MariaDB 10.11), and whoever
// reads it waits for each transaction that has put a job in.
var mysql = grammar{
	name: "mysql",
	now:  `UTC_TIMESTAMP(6)`, later: `UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`,
	age: `TIMESTAMPDIFF(MICROSECOND, %, UTC_TIMESTAMP(6))`, unix: `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %) DIV 1000`,
	table: `headgate_outbox FORCE INDEX (PRIMARY)`,
	sent:  `UPDATE JSON_TABLE('[%[2]s]', '$[*]' COLUMNS (seq bigint PATH '$')) n STRAIGHT_JOIN headgate_outbox o ON o.seq = n.seq SET o.sent = %[1]s`,
	drop:  `DELETE o FROM JSON_TABLE('[%s]', '$[*]' COLUMNS (seq bigint PATH '$')) n STRAIGHT_JOIN headgate_outbox o ON o.seq = n.seq`,
	// The rows that are copied stay locked until they are deleted, and so do the gaps between them: no row can die unseen in between.
	isolation: sql.LevelRepeatableRead,
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
	alone: func(ctx context.Context, db *sql.DB, do func(statements) error) (err error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		got, err := myLock{}.get(ctx, conn, myMigrateLock, myLockSeconds)
		if err != nil {
			return err
		}
		if !got {
			return errors.New("another program has been migrating for " + myLockSeconds + " s")
		}
		err = do(conn)
		free, cancel := detached(ctx)
		defer cancel()
		_, _ = conn.ExecContext(free, `DO RELEASE_LOCK(`+myMigrateLock+`)`) // A broken connection has lost it.
		return err
	},
	relayLock: myLock{},
}

// myLock is the connection's, as PostgreSQL's. It is of one server: where several take writes, all relays have to use the same.
type myLock struct{}

func (myLock) get(ctx context.Context, conn *sql.Conn, name, seconds string) (bool, error) {
	var got sql.NullInt64 // It is NULL where the server had an error of its own.
	err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(`+name+`, `+seconds+`)`).Scan(&got)
	if err == nil && !got.Valid {
		err = errors.New("GET_LOCK answers NULL: is there a database in the address?")
	}
	return got.Int64 == 1, err
}

func (l myLock) take(ctx context.Context, conn *sql.Conn, _ string, _ time.Duration) (bool, error) {
	return l.get(ctx, conn, myRelayLock, "0")
}

func (myLock) keep(context.Context, statements, string, time.Duration) error { return nil }

func (myLock) free(ctx context.Context, conn *sql.Conn, _ string) {
	_, _ = conn.ExecContext(ctx, `DO RELEASE_LOCK(`+myRelayLock+`)`)
}
