package outbox

import (
	"context"
	"database/sql"
	"time"
)

// The advisory locks of a database: one for who migrates, one for the relay that works.
const (
	pgMigrateLock = 0x68676f62_00000001
	pgRelayLock   = 0x68676f62_00000002
)

var postgresql = grammar{
	name: "postgresql", numbered: true,
	now: `now()`, later: `now() + ? * interval '1 microsecond'`,
	age: `(extract(epoch FROM clock_timestamp() - %) * 1000000)::bigint`, unix: `(extract(epoch FROM %) * 1000)::bigint`,
	table: `headgate_outbox`, sent: plainSent, drop: plainDrop,
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
	alone: func(ctx context.Context, db *sql.DB, do func(statements) error) error {
		return transact(ctx, db, sql.LevelDefault, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(pgMigrateLock)); err != nil {
				return err
			}
			return do(tx)
		})
	},
	relayLock: pgLock{},
}

// pgLock is an advisory lock: whoever has lost the connection has lost it, and can claim nothing.
type pgLock struct{}

func (pgLock) take(ctx context.Context, conn *sql.Conn, _ string, _ time.Duration) (got bool, err error) {
	err = conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, int64(pgRelayLock)).Scan(&got)
	return got, err
}

func (pgLock) keep(context.Context, statements, string, time.Duration) error { return nil }

func (pgLock) free(ctx context.Context, conn *sql.Conn, _ string) {
	// A connection that cannot unlock is broken, and with it the lock is gone.
	_, _ = conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, int64(pgRelayLock))
}
