package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Tables are those of one package, and the names of its locks. They are the same in all releases, so that two of different ones exclude each other.
type Tables struct {
	// Of is what they are, for errors: "outbox".
	Of string
	// Version is the table with the version that they have.
	Version string
	// PgMigrate and PgWork are PostgreSQL's advisory locks, MyMigrate and MyWork the begins of MySQL's names, LiteWork the table of SQLite with the
	// lease (one INTEGER PRIMARY KEY, who TEXT NOT NULL, until INTEGER NOT NULL), which a migration makes.
	PgMigrate, PgWork           int64
	MyMigrate, MyWork, LiteWork string
}

// Lock lets one of several work.
type Lock interface {
	// Take reports whether it got the lock, for its connection or for a time.
	Take(ctx context.Context, conn *sql.Conn, of *Tables, who string, lease time.Duration) (bool, error)
	// Keep fails with a *LostError where the lock is another's by now. It is asked first in a transaction that writes.
	Keep(ctx context.Context, in Statements, of *Tables, who string, lease time.Duration) error
	Free(ctx context.Context, conn *sql.Conn, of *Tables, who string)
}

// LockOf returns the lock of a dialect.
func LockOf(d Dialect) Lock { return grammars[d].Lock }

// LostError says that a lease ended before the work.
type LostError struct{ Lease time.Duration }

// Error says how long the lease was.
func (e *LostError) Error() string {
	return fmt.Sprintf("this one took longer than its lease of %s", e.Lease)
}

// Migrate brings tables to the newest version: migrations are what each version adds to that before it. It may be called at every start, also by
// many at once: one does it. The error says where the tables are of a newer release.
func (d Dialect) Migrate(ctx context.Context, db *sql.DB, of *Tables, migrations [][]string) error {
	if err := d.Validate(); err != nil {
		return err
	}
	err := grammars[d].alone(ctx, db, of, func(in Statements) error { return d.migrate(ctx, in, of, migrations) })
	if err != nil {
		return fmt.Errorf("migrate the %s: %w", of.Of, err)
	}
	return nil
}

func (t *Tables) createVersion() string {
	return `CREATE TABLE IF NOT EXISTS ` + t.Version + ` (version integer PRIMARY KEY)`
}

func (d Dialect) migrate(ctx context.Context, in Statements, of *Tables, migrations [][]string) error {
	if _, err := in.ExecContext(ctx, of.createVersion()); err != nil {
		return err
	}
	var version int
	if err := in.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM `+of.Version).Scan(&version); err != nil {
		return err
	}
	if version > len(migrations) {
		return fmt.Errorf("the tables are of version %d, this release knows 0 to %d", version, len(migrations))
	}
	for ; version < len(migrations); version++ {
		for _, statement := range migrations[version] {
			if _, err := in.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("version %d: %w", version+1, err)
			}
		}
		if _, err := in.ExecContext(ctx, d.Text(`INSERT INTO `+of.Version+` VALUES (?)`), version+1); err != nil {
			return err
		}
	}
	return nil
}
