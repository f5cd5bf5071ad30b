package outbox

import (
	"context"
	"database/sql"

	"github.com/headgate/headgate/internal/sqldb"
)

// Migrate brings the tables of a PostgreSQL to the newest version; see Dialect.Migrate.
func Migrate(ctx context.Context, db *sql.DB) error { return PostgreSQL.Migrate(ctx, db) }

// Migrate brings the tables of a database to the newest version. It may be called at every start, also by many at once: one does it. The
// error says where the tables are of a newer release.
func (d Dialect) Migrate(ctx context.Context, db *sql.DB) error {
	if err := d.validate(); err != nil {
		return err
	}
	return sqldb.Dialect(d).Migrate(ctx, db, &tables, grammars[d].migrations)
}
