//go:build unix

package mirror_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/mirrortest"
	"github.com/headgate/headgate/mirror"
	"github.com/headgate/headgate/outbox"
)

// TestADatabaseThatHangs stops answering without closing anything, at each kind of statement. The mirror says so, and goes on when it is over.
func TestADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		dialect outbox.Dialect
		server  func(testing.TB) *dbtest.Server
		lock    string
	}{{outbox.PostgreSQL, dbtest.PostgreSQL, "pg_try_advisory_lock"}, {outbox.MySQL, dbtest.MariaDB, "GET_LOCK"}} {
		t.Run(of.dialect.String(), func(t *testing.T) {
			t.Parallel()
			s := of.server(t)
			for _, at := range []string{"", of.lock, "SELECT id FROM headgate_audit", "FROM headgate_usage", "COMMIT"} {
				t.Run("at "+at, func(t *testing.T) { testHangs(t, s, of.dialect, at) })
			}
		})
	}
}

func testHangs(t *testing.T, s *dbtest.Server, d outbox.Dialect, at string) {
	t.Helper()
	w := s.Stall(t)
	b := mirrortest.NewBench(t, &mirrortest.Database{Dialect: d, Driver: s.Driver(), Source: w.Source}, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.Policy(t.Context()))
	for range 5 {
		must(b.Act(t.Context()))
	}
	told, over := make(chan error, 100), make(chan struct{}, 100)
	m := b.Mirror(t, func(c *mirror.Config) {
		c.OnError, c.OnOver = func(err error) { told <- err }, func() { over <- struct{}{} }
	})
	m.Patient(300 * time.Millisecond)
	stalled := w.At(at)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	wait(t, "the stall", stalled)
	if err := wait(t, "the error", told); err == nil {
		t.Error("it tells of no error")
	}
	w.Resume()
	wait(t, "the end of the error", over)
	must(b.Act(t.Context()))
	cancel()
	must(wait(t, "the end of Run", ended))
	must(b.Mirror(t, nil).Once(t.Context()))
	b.Equal(t)
}

func wait[T any](t *testing.T, what string, c <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s does not come", what)
	}
	return got
}
