//go:build unix

package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/store/redisstore"
)

// TestOutboxMovesFromMariaDB: by its address, with a password that no error shows.
func TestOutboxMovesFromMariaDB(t *testing.T) {
	t.Parallel()
	server := dbtest.MariaDB(t)
	db := server.Open(t)
	if err := outbox.MySQL.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.MySQL.Enqueue(t.Context(), db, admission.NewJob("acme", "mail", "send", nil)); err != nil {
		t.Fatal(err)
	}
	file, prefix := filepath.Join(t.TempDir(), "database"), redistest.Prefix(t)
	for _, row := range []struct {
		address string
		code    int
		says    string
	}{
		{server.URL(), 0, `"admitted":1`},
		{"mariadb" + strings.TrimPrefix(server.URL(), "mysql"), 0, `"admitted":0`},
		{server.URL() + "&charset=utf8mb4,utf8&loc=Europe/Berlin", 0, `"admitted":0`},
		{"mysql://me:hunter2@127.0.0.1/", 2, "database-file"},
		{"mysql://me:hunter2@127.0.0.1/name?nosuch=%zz", 2, "database-file"},
		{"mysql://me:hunter2@127.0.0.1/name?tls=nosuch", 2, "database-file"},
		{"mysql://me:hunter2@127.0.0.1:1/name", 1, "migrate the outbox"},
		{"oracle://me:hunter2@127.0.0.1/name", 2, "postgres://user:password@host/name, mysql://user:password@host/name or sqlite:FILE"},
		{"sqlite:/tmp/hunter2.db", 2, "headgate-sqlite"},
	} {
		if err := os.WriteFile(file, []byte(row.address), 0o600); err != nil {
			t.Fatal(err)
		}
		var notes bytes.Buffer
		args := []string{"outbox", "--redis", redistest.Shared(t).Addr(), "--prefix", prefix, "--database-file", file, "--once"}
		code := execute(t.Context(), args, strings.NewReader(""), &notes, &notes)
		if code != row.code || !strings.Contains(notes.String(), row.says) || strings.Contains(notes.String(), "hunter2") {
			t.Errorf("%s: exit code %d: %s", row.address, code, notes.String())
		}
	}
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: prefix})
	must(t, err)
	if allowed, _ := (&plant{t: t, store: s}).counted("acme:mail"); allowed != 1 {
		t.Errorf("%d jobs are counted, want the one that was moved", allowed)
	}
}

// TestOutboxMovesWhatWasCommitted: the command makes the tables and moves a row; an address that is none is not shown.
func TestOutboxMovesWhatWasCommitted(t *testing.T) {
	t.Parallel()
	pg, file := dbtest.PostgreSQL(t), filepath.Join(t.TempDir(), "database")
	run := func(address string) (int, string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(address+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, notes bytes.Buffer
		args := []string{"outbox", "--redis", redistest.Shared(t).Addr(), "--prefix", redistest.Prefix(t), "--database-file", file, "--once"}
		code := execute(t.Context(), args, strings.NewReader(""), &out, &notes)
		return code, out.String() + notes.String()
	}
	if code, said := run(pg.URL()); code != 0 {
		t.Fatalf("%d: %s", code, said)
	}
	if _, err := outbox.Enqueue(t.Context(), pg.Open(t), admission.NewJob("acme", "mail", "send", nil)); err != nil {
		t.Fatal(err)
	}
	if code, said := run(pg.URL()); code != 0 || !strings.Contains(said, `"admitted":1`) {
		t.Errorf("%d: %s", code, said)
	}
	invalid := admission.NewJob("acme", "mail", "send", nil)
	invalid.Priority = "nobody"
	if _, err := outbox.Enqueue(t.Context(), pg.Open(t), invalid); err != nil {
		t.Fatal(err)
	}
	if code, said := run(pg.URL()); code != 0 {
		t.Fatalf("%d: %s", code, said)
	}
	ask := func(want int, args ...string) string {
		t.Helper()
		var out, notes bytes.Buffer
		if code := execute(t.Context(), append(append([]string{"outbox"}, args...), "--database-file", file), strings.NewReader(""), &out, &notes); code != want {
			t.Errorf("%v: exit code %d: %s", args, code, notes.String())
		}
		return out.String()
	}
	if said := ask(0, "status", "--json"); !strings.Contains(said, `"rows": 0`) || !strings.Contains(said, `"dead": 1`) || !strings.Contains(said, invalid.Tenant) {
		t.Errorf("%s", said)
	}
	if said := ask(0, "redrive", "--all"); said != "1 rows are back in the outbox\n" {
		t.Errorf("%s", said)
	}
	if said := ask(0, "status"); !strings.HasPrefix(said, "1 rows wait") {
		t.Errorf("%s", said)
	}
	ask(3, "redrive", "--reason", "doubt")
	ask(2, "redrive")
	if code, said := run("postgres://me:hunter2@[bad"); code != 2 || strings.Contains(said, "hunter2") {
		t.Errorf("%d: %s", code, said)
	}
}

// scrapeRelay returns the metrics of headgate outbox once it has moved a row.
func scrapeRelay(t *testing.T) (said string) {
	t.Helper()
	server, file := dbtest.MariaDB(t), filepath.Join(t.TempDir(), "database")
	must(t, os.WriteFile(file, []byte(server.URL()), 0o600))
	relay := addressOf(newDeployment(t), "outbox", "--database-file", file, "--metrics", "127.0.0.1:0")
	db := server.Open(t)
	_, err := outbox.MySQL.Enqueue(t.Context(), db, admission.NewJob("acme", "mail", "send", nil))
	must(t, err)
	eventually(t, func() bool {
		said = call(t, http.MethodGet, relay, "", http.StatusOK)
		return strings.Contains(said, `headgate_outbox_rows_total{result="admitted"} 1`) &&
			strings.Contains(said, "headgate_outbox_working 1\n") && strings.Contains(said, "headgate_outbox_lag_seconds 0\n")
	})
	return said
}
