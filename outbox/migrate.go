package outbox

import (
	"context"
	"database/sql"
	"fmt"
)

// The advisory locks of a database: one for who migrates, one for the relay that works.
const (
	migrateLock = 0x68676f62_00000001
	relayLock   = 0x68676f62_00000002
)

// migrations are what each version adds to that before it. One that was released is never changed.
var migrations = []string{
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
	)`,
}

// Migrate brings the tables of a PostgreSQL to the newest version. It may be called at every start, also by many at once: one does it,
// in a transaction. The error says where the tables are of a newer release.
func Migrate(ctx context.Context, db *sql.DB) error {
	if err := migrate(ctx, db); err != nil {
		return fmt.Errorf("migrate the outbox: %w", err)
	}
	return nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // After Commit it does nothing.
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrateLock)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS headgate_outbox_version (version integer PRIMARY KEY)`); err != nil {
		return err
	}
	var version int
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM headgate_outbox_version`).Scan(&version); err != nil {
		return err
	}
	if version > len(migrations) {
		return fmt.Errorf("the tables are of version %d, this release knows 0 to %d", version, len(migrations))
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
			return fmt.Errorf("version %d: %w", version+1, err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO headgate_outbox_version VALUES ($1)`, version+1); err != nil {
			return err
		}
	}
	return tx.Commit()
}
