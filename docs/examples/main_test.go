package examples_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func open(tb testing.TB) *headgate.Client {
	tb.Helper()
	hg, err := headgate.Open(tb.Context(), redistest.Shared(tb).URL(), headgate.Config{Prefix: redistest.Prefix(tb)})
	check(tb, err)
	tb.Cleanup(func() { check(tb, hg.Close()) })
	return hg
}

// database returns a PostgreSQL of the test's own.
func database(tb testing.TB) *sql.DB {
	tb.Helper()
	return dbtest.PostgreSQL(tb).Open(tb)
}

// work runs a worker until the test ends.
func work(tb testing.TB, w *headgate.Worker) {
	tb.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			tb.Errorf("run: %v", err)
		}
	})
	tb.Cleanup(func() {
		stop()
		running.Wait()
	})
}

// Welcome is what a mail says.
type Welcome struct{ To string }

func (Welcome) Kind() string { return "welcome" }
