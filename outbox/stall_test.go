//go:build unix

package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/outbox"
)

// taker lets all jobs in.
type taker struct{}

func (taker) EnqueueBatch(_ context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error) {
	return make([]admission.EnqueueResult, len(jobs)), nil
}

// TestADatabaseThatHangs stops answering without closing anything, at each kind of statement. The relay says so, and goes on when it is over.
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
			must(t, of.dialect.Migrate(t.Context(), s.Open(t)))
			for _, at := range []string{"", of.lock, "COMMIT"} {
				t.Run("at "+at, func(t *testing.T) { testHangs(t, s, of.dialect, at) })
			}
		})
	}
}

func testHangs(t *testing.T, s *dbtest.Server, d outbox.Dialect, at string) {
	t.Helper()
	w := s.Stall(t)
	db, err := sql.Open(s.Driver(), w.Source)
	must(t, err)
	defer db.Close()
	direct := s.Open(t)
	_, err = d.Enqueue(t.Context(), direct, admission.NewJob("acme", "mail", "send", nil))
	must(t, err)
	told := make(chan error, 100)
	r, err := outbox.NewRelay(db, taker{}, outbox.Config{Dialect: d, Window: window, Poll: 10 * time.Millisecond, OnError: func(err error) { told <- err }})
	must(t, err)
	r.Patient(300 * time.Millisecond)
	stalled := w.At(at)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	wait(t, "the stall", stalled)
	if err := wait(t, "the error", told); err == nil {
		t.Error("it tells of no error")
	}
	w.Resume()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(10 * time.Millisecond) {
		s, err := d.Status(t.Context(), direct)
		if must(t, err); s.Rows == 0 && s.Dead == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the outbox holds %+v", s)
		}
	}
	cancel()
	must(t, wait(t, "the end of Run", ended))
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
