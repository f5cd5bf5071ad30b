package sqldb

import (
	"context"
	"database/sql"
	"time"
)

var postgresql = grammar{
	name: "postgresql", numbered: true,
	now: `now()`, later: `now() + ? * interval '1 microsecond'`,
	age: `(extract(epoch FROM clock_timestamp() - %) * 1000000)::bigint`, unix: `(extract(epoch FROM %) * 1000)::bigint`,
	alone: func(ctx context.Context, db *sql.DB, of *Tables, do func(Statements) error) error {
		return With(ctx, db, func(conn *sql.Conn) error {
			return Transact(ctx, conn, func() error {
				if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, of.PgMigrate); err != nil {
					return err
				}
				return do(conn)
			})
		})
	},
	Lock: pgLock{},
}

// pgLock is an advisory lock: whoever has lost the connection has lost it, and can write nothing.
type pgLock struct{}

func (pgLock) Take(ctx context.Context, conn *sql.Conn, of *Tables, _ string, _ time.Duration) (got bool, err error) {
	err = conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, of.PgWork).Scan(&got)
	return got, err
}

func (pgLock) Keep(context.Context, Statements, *Tables, string, time.Duration) error { return nil }

func (pgLock) Free(ctx context.Context, conn *sql.Conn, of *Tables, _ string) {
	// A connection that cannot unlock is broken, and with it the lock is gone.
	_, _ = conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, of.PgWork)
}
