//go:build unix

package main

import (
	"bytes"
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/redistest"
)

// TestMirrorCopiesAndTells: by an address on the line, in a file and in neither; a password is not taken from the line, and shown by no error.
func TestMirrorCopiesAndTells(t *testing.T) {
	t.Parallel()
	server := dbtest.PostgreSQL(t)
	redis, prefix := redistest.Shared(t).Addr(), redistest.Prefix(t)
	run := func(want int, args ...string) string {
		t.Helper()
		var out, notes bytes.Buffer
		if code := execute(t.Context(), args, strings.NewReader(""), &out, &notes); code != want {
			t.Errorf("%v: exit code %d: %s", args, code, notes.String())
		}
		return out.String() + notes.String()
	}
	on := []string{"--redis", redis, "--prefix", prefix}
	with := func(args ...string) []string { return append(args, on...) }
	run(0, with("pause", "--queue", "mail", "--for", "1m", "--reason", "provider migrates")...)
	if said := run(0, with("mirror", "--to", server.URL(), "--once")...); !strings.Contains(said, `"audit":1`) {
		t.Errorf("%s", said)
	}
	var reason string
	if err := server.Open(t).QueryRowContext(t.Context(), `SELECT reason FROM headgate_audit WHERE action = 'pause'`).Scan(&reason); err != nil || reason != "provider migrates" {
		t.Errorf("%q, %v", reason, err)
	}
	file := filepath.Join(t.TempDir(), "database")
	must(t, os.WriteFile(file, []byte(server.URL()), 0o600))
	if said := run(0, "mirror", "status", "--database-file", file); !strings.HasPrefix(said, "SOURCE") || !strings.Contains(said, "audit        1     ") {
		t.Errorf("%s", said)
	}
	if said := run(0, "mirror", "status", "--to", server.URL(), "--json"); !strings.Contains(said, `"source": "audit",`+"\n      "+`"rows": 1`) {
		t.Errorf("%s", said)
	}
	if said := run(1, "mirror", "--to", server.URL(), "--once", "--redis", redis, "--prefix", "other"+prefix); !strings.Contains(said, "of the deployment with the prefix") {
		t.Errorf("%s", said)
	}
	for _, bad := range [][]string{
		{"--to", "postgres://me:hunter2@127.0.0.1/name"},
		{"--to", "host=127.0.0.1 password=hunter2"},
		{"--to", "mysql://me:hunter2@[bad"},
		{"--to", "oracle://me@127.0.0.1/name"},
		{"--to", server.URL(), "--database-file", file},
		{},
	} {
		if said := run(2, with(append([]string{"mirror"}, bad...)...)...); strings.Contains(said, "hunter2") || !strings.Contains(said, "--") {
			t.Errorf("%v: %s", bad, said)
		}
	}
}

// scrapeMirror returns the metrics of headgate mirror once it has copied.
func scrapeMirror(t *testing.T) (said string) {
	t.Helper()
	server := dbtest.MariaDB(t)
	at := addressOf(newDeployment(t), "mirror", "--to", server.URL(), "--metrics", "127.0.0.1:0")
	db := server.Open(t)
	eventually(t, func() bool {
		var began sql.NullInt64
		said = call(t, http.MethodGet, at, "", http.StatusOK)
		err := db.QueryRowContext(t.Context(), `SELECT max(part) FROM headgate_mirror_place WHERE source = 'usage'`).Scan(&began)
		return err == nil && began.Valid && strings.Contains(said, `headgate_mirror_rows_total{source="audit"} `) &&
			strings.Contains(said, "headgate_mirror_working 1\n") && strings.Contains(said, `headgate_mirror_lag_seconds{source="usage"} `)
	})
	return said
}
