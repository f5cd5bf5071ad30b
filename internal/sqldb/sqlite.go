package sqldb

import (
	"context"
	"database/sql"
	"time"
)

// liteNow is milliseconds since 1970, as all times of the tables are.
const liteNow = `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`

// A transaction begins with a write, because one that reads first and then writes is refused where another has written in between.
var sqlite = grammar{
	name: "sqlite",
	now:  liteNow, later: liteNow + ` + (? + 999) / 1000`,
	age: `(` + liteNow + ` - %) * 1000`, unix: `%`,
	alone: func(ctx context.Context, db *sql.DB, of *Tables, do func(Statements) error) error {
		if _, err := db.ExecContext(ctx, of.createVersion()); err != nil {
			return err
		}
		return With(ctx, db, func(conn *sql.Conn) error {
			return Transact(ctx, conn, func() error {
				if _, err := conn.ExecContext(ctx, `UPDATE `+of.Version+` SET version = version`); err != nil {
					return err
				}
				return do(conn)
			})
		})
	},
	Lock: liteLock{},
}

// liteLock is a row that one has for a time: SQLite has no lock that ends with a connection.
type liteLock struct{}

func (liteLock) Take(ctx context.Context, conn *sql.Conn, of *Tables, who string, lease time.Duration) (bool, error) {
	result, err := conn.ExecContext(ctx, `INSERT INTO `+of.LiteWork+` (one, who, until) VALUES (1, ?, `+liteNow+` + ?)
		ON CONFLICT (one) DO UPDATE SET who = excluded.who, until = excluded.until WHERE until < `+liteNow, who, lease.Milliseconds())
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

func (liteLock) Keep(ctx context.Context, in Statements, of *Tables, who string, lease time.Duration) error {
	result, err := in.ExecContext(ctx, `UPDATE `+of.LiteWork+` SET until = `+liteNow+` + ? WHERE who = ?`, lease.Milliseconds(), who)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n == 1 || err != nil {
		return err
	}
	return &LostError{lease}
}

func (liteLock) Free(ctx context.Context, conn *sql.Conn, of *Tables, who string) {
	_, _ = conn.ExecContext(ctx, `DELETE FROM `+of.LiteWork+` WHERE who = ?`, who) // Its time ends if this fails.
}
