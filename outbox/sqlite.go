package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// liteNow is milliseconds since 1970, as all times of the tables are.
const liteNow = `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`

// A transaction begins with a write, because one that reads first and then writes is refused where another has written in between.
var sqlite = grammar{
	name: "sqlite",
	now:  liteNow, later: liteNow + ` + (? + 999) / 1000`,
	age: `(` + liteNow + ` - %) * 1000`, unix: `%`,
	table: `headgate_outbox`, sent: plainSent, drop: plainDrop,
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
	alone: func(ctx context.Context, db *sql.DB, do func(statements) error) error {
		if _, err := db.ExecContext(ctx, createVersion); err != nil {
			return err
		}
		return transact(ctx, db, sql.LevelDefault, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `UPDATE headgate_outbox_version SET version = version`); err != nil {
				return err
			}
			return do(tx)
		})
	},
	relayLock: liteLock{},
}

// liteLock is a row that a relay has for a time: SQLite has no lock that ends with a connection.
type liteLock struct{}

func (liteLock) take(ctx context.Context, conn *sql.Conn, who string, lease time.Duration) (bool, error) {
	result, err := conn.ExecContext(ctx, `INSERT INTO headgate_outbox_relay (one, who, until) VALUES (1, ?, `+liteNow+` + ?)
		ON CONFLICT (one) DO UPDATE SET who = excluded.who, until = excluded.until WHERE until < `+liteNow, who, lease.Milliseconds())
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

func (liteLock) keep(ctx context.Context, in statements, who string, lease time.Duration) error {
	result, err := in.ExecContext(ctx, `UPDATE headgate_outbox_relay SET until = `+liteNow+` + ? WHERE who = ?`, lease.Milliseconds(), who)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n == 1 || err != nil {
		return err
	}
	return fmt.Errorf("this one took longer than its lease of %s: %w", lease, ErrStandby)
}

func (liteLock) free(ctx context.Context, conn *sql.Conn, who string) {
	_, _ = conn.ExecContext(ctx, `DELETE FROM headgate_outbox_relay WHERE who = ?`, who) // Its time ends if this fails.
}
