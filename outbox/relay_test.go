//go:build unix

package outbox_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/outboxtest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { outboxtest.Main(m) }

func window(context.Context) (time.Duration, error) { return policy.DefaultDedupWindow, nil }

func postgresql(tb testing.TB) *outboxtest.Database {
	tb.Helper()
	s := dbtest.PostgreSQL(tb)
	return &outboxtest.Database{Dialect: outbox.PostgreSQL, Driver: s.Driver(), Source: s.Source(), Kill: s.Kill, Restart: s.Restart}
}

func mariadb(tb testing.TB) *outboxtest.Database {
	tb.Helper()
	s := dbtest.MariaDB(tb)
	return &outboxtest.Database{Dialect: outbox.MySQL, Driver: s.Driver(), Source: s.Source(), Kill: s.Kill, Restart: s.Restart}
}

// TestOutbox holds an outbox to its rules on each database that has a server; SQLite's is in the module outboxsqlite.
func TestOutbox(t *testing.T) {
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		d := postgresql(t)
		t.Run("the tables of the first release", func(t *testing.T) { testFirstTables(t, d) })
		outboxtest.Suite(t, d)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		outboxtest.Suite(t, mariadb(t))
	})
}

// TestStorm kills everybody; `make outbox-storm` for ten minutes.
func TestStorm(t *testing.T) {
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		outboxtest.Storm(t, postgresql(t), 3*time.Second)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		outboxtest.Storm(t, mariadb(t), 3*time.Second)
	})
}

// testFirstTables: the rows that are there are moved, and the tables become what an empty database gets.
func testFirstTables(t *testing.T, d *outboxtest.Database) { //nolint:thelper // It is a test.
	text, err := os.ReadFile("testdata/postgresql-1.sql")
	must(t, err)
	db, err := sql.Open(d.Driver, d.Source)
	must(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), string(text))
	must(t, err)
	b := outboxtest.NewBench(t, d)
	b.Once(t)
	b.Expect(t, 0, 0, 1) // Whether that of an hour ago has run nobody knows.
	had := columns(t, db)
	_, err = db.ExecContext(t.Context(), "DROP TABLE headgate_outbox, headgate_outbox_dead, headgate_outbox_version")
	must(t, err)
	must(t, d.Dialect.Migrate(t.Context(), db))
	if has := columns(t, db); had != has || len(had) < 500 {
		t.Errorf("the tables were\n%s\nand are in an empty database\n%s", had, has)
	}
}

// columns are the columns and indexes of the tables of an outbox.
func columns(t *testing.T, db *sql.DB) (all string) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), `SELECT string_agg(line, E'\n' ORDER BY line) FROM (
		SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default, is_identity) AS line
		FROM information_schema.columns WHERE table_name LIKE 'headgate_outbox%' UNION ALL
		SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'headgate_outbox%') AS lines`).Scan(&all)
	must(t, err)
	return all
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
