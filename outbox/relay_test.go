//go:build unix

package outbox_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mariatest"
	"github.com/headgate/headgate/internal/outboxtest"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/outbox"
)

func TestMain(m *testing.M) { outboxtest.Main(m) }

func postgresql(tb testing.TB) *outboxtest.Database {
	tb.Helper()
	s := pgtest.Start(tb)
	return &outboxtest.Database{Dialect: outbox.PostgreSQL, Driver: "pgx", Source: s.URL(), Kill: s.Kill, Restart: s.Restart}
}

func mariadb(tb testing.TB) *outboxtest.Database {
	tb.Helper()
	s := mariatest.Start(tb)
	return &outboxtest.Database{Dialect: outbox.MySQL, Driver: "mysql", Source: s.Source(), Kill: s.Kill, Restart: s.Restart}
}

// TestOutbox holds an outbox to its rules on each database that has a server; SQLite's is in the module outboxsqlite.
func TestOutbox(t *testing.T) {
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		outboxtest.Suite(t, postgresql(t))
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
