//go:build unix

package mirror_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/mirrortest"
	"github.com/headgate/headgate/mirror"
	"github.com/headgate/headgate/outbox"
)

func TestMain(m *testing.M) { mirrortest.Main(m) }

func postgresql(tb testing.TB) *mirrortest.Database {
	tb.Helper()
	s := dbtest.PostgreSQL(tb)
	return &mirrortest.Database{Dialect: outbox.PostgreSQL, Driver: s.Driver(), Source: s.Source(), Kill: s.Kill, Restart: s.Restart}
}

func mariadb(tb testing.TB) *mirrortest.Database {
	tb.Helper()
	s := dbtest.MariaDB(tb)
	return &mirrortest.Database{Dialect: outbox.MySQL, Driver: s.Driver(), Source: s.Source(), Kill: s.Kill, Restart: s.Restart}
}

// TestMirror holds a mirror to its rules on each database that has a server; SQLite's is in the module cmd/headgate/sqlite.
func TestMirror(t *testing.T) {
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		d := postgresql(t)
		mirrortest.Suite(t, d)
		t.Run("what had gone of the audit is told", func(t *testing.T) { mirrortest.AuditGap(t, d) })
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		mirrortest.Suite(t, mariadb(t))
	})
}

func TestStorm(t *testing.T) {
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		mirrortest.Storm(t, postgresql(t), 4*time.Second)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		mirrortest.Storm(t, mariadb(t), 4*time.Second)
	})
}

// TestThePageHasTheQueriesThatAreRun holds docs/guides/mirror.md to the queries that the suite runs.
func TestThePageHasTheQueriesThatAreRun(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guides/mirror.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range mirrortest.Questions {
		if !strings.Contains(string(page), "```sql\n"+query+"\n```") {
			t.Errorf("the page does not have\n%s", query)
		}
	}
	if n := strings.Count(string(page), "```sql"); n != len(mirrortest.Questions) {
		t.Errorf("the page has %d queries, %d are run", n, len(mirrortest.Questions))
	}
}

func TestABadConfigIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	_, err := mirror.New(nil, nil, mirror.Config{Dialect: 7, Poll: time.Hour, Usage: time.Microsecond})
	want := "invalid Dialect 7: allowed is PostgreSQL, MySQL or SQLite\ninvalid Poll 1h0m0s: allowed is 10ms to 1m\ninvalid Usage 1µs: allowed is 10ms to 1h"
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != want {
		t.Error(err)
	}
}
