//go:build unix

package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mirrortest"
	"github.com/headgate/headgate/internal/outboxtest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbox"
)

// TestMain runs the tests, or the role of an outbox or of a mirror that a test kills.
func TestMain(m *testing.M) {
	if mirrortest.IsRole() {
		mirrortest.Main(m)
	}
	outboxtest.Main(m)
}

func mirrored(tb testing.TB) *mirrortest.Database {
	tb.Helper()
	d := sqlite(tb, "WAL")
	return &mirrortest.Database{Dialect: d.Dialect, Driver: d.Driver, Source: d.Source}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	mirrortest.Suite(t, mirrored(t))
}

func TestMirrorStorm(t *testing.T) {
	t.Parallel()
	mirrortest.Storm(t, mirrored(t), 4*time.Second)
}

// sqlite is a file with a journal of some mode.
func sqlite(tb testing.TB, journal string) *outboxtest.Database {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs Redis, which -short leaves out")
	}
	source := "file:" + filepath.Join(tb.TempDir(), "app.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(" + journal + ")"
	return &outboxtest.Database{Dialect: outbox.SQLite, Driver: "sqlite", Source: source}
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			t.Parallel()
			outboxtest.Suite(t, sqlite(t, journal))
		})
	}
}

func TestStorm(t *testing.T) {
	t.Parallel()
	outboxtest.Storm(t, sqlite(t, "WAL"), 3*time.Second)
}

func BenchmarkRelay(b *testing.B) { outboxtest.BenchmarkRelay(b, sqlite(b, "WAL")) }

// TestCommand: the command makes the tables in a file and moves a row.
func TestCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs Redis, which -short leaves out")
	}
	folder := t.TempDir()
	file, address := filepath.Join(folder, "app.db"), filepath.Join(folder, "address")
	if err := os.WriteFile(address, []byte("sqlite:"+file), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := outbox.SQLite.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.SQLite.Enqueue(t.Context(), db, outboxtest.Job("one")); err != nil {
		t.Fatal(err)
	}
	args := []string{"outbox", "--redis", redistest.Shared(t).Addr(), "--prefix", redistest.Prefix(t), "--database-file", address, "--once"}
	if code := execute(t.Context(), args); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if s, err := outbox.SQLite.Status(t.Context(), db); err != nil || s.Rows+s.Dead != 0 {
		t.Errorf("the outbox holds %+v, %v", s, err)
	}
}
