package outbox

import (
	"context"
	"database/sql"
	"fmt"
)

const createVersion = `CREATE TABLE IF NOT EXISTS headgate_outbox_version (version integer PRIMARY KEY)`

// Migrate brings the tables of a PostgreSQL to the newest version; see Dialect.Migrate.
func Migrate(ctx context.Context, db *sql.DB) error { return PostgreSQL.Migrate(ctx, db) }

// Migrate brings the tables of a database to the newest version. It may be called at every start, also by many at once: one does it. The
// error says where the tables are of a newer release.
func (d Dialect) Migrate(ctx context.Context, db *sql.DB) error {
	if err := d.validate(); err != nil {
		return err
	}
	g := grammars[d]
	if err := g.alone(ctx, db, func(in statements) error { return g.migrate(ctx, in) }); err != nil {
		return fmt.Errorf("migrate the outbox: %w", err)
	}
	return nil
}

func (g *grammar) migrate(ctx context.Context, in statements) error {
	if _, err := in.ExecContext(ctx, createVersion); err != nil {
		return err
	}
	var version int
	if err := in.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM headgate_outbox_version`).Scan(&version); err != nil {
		return err
	}
	if version > len(g.migrations) {
		return fmt.Errorf("the tables are of version %d, this release knows 0 to %d", version, len(g.migrations))
	}
	for ; version < len(g.migrations); version++ {
		for _, statement := range g.migrations[version] {
			if _, err := in.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("version %d: %w", version+1, err)
			}
		}
		if _, err := in.ExecContext(ctx, g.text(`INSERT INTO headgate_outbox_version VALUES (?)`), version+1); err != nil {
			return err
		}
	}
	return nil
}

// transact does something in a transaction of its own.
func transact(ctx context.Context, in interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}, isolation sql.IsolationLevel, do func(*sql.Tx) error,
) error {
	tx, err := in.BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // After Commit it does nothing.
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// detached is for what has to be done also when ctx has ended.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
}
