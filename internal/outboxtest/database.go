//go:build unix

package outboxtest

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// Database is one to test on, for one test alone.
type Database struct {
	Dialect outbox.Dialect
	// Driver and Source are those of sql.Open.
	Driver, Source string
	// Kill ends the server as a crash would, and Restart starts it again; nil where there is none.
	Kill, Restart func(testing.TB)
}

// open returns connections of the test's own.
func (d *Database) open(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open(d.Driver, d.Source)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// ago is the time so many seconds before now.
func ago(d outbox.Dialect, seconds int) string {
	switch d {
	case outbox.MySQL:
		return fmt.Sprintf("UTC_TIMESTAMP(6) - INTERVAL %d SECOND", seconds)
	case outbox.SQLite:
		return fmt.Sprintf("CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - %d000", seconds)
	default:
		return fmt.Sprintf("now() - interval '%d seconds'", seconds)
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func window(context.Context) (time.Duration, error) { return policy.DefaultDedupWindow, nil }

// timeout is a relay's: so its lease on SQLite is half a second.
const timeout = 100 * time.Millisecond

// Bench is a database, a deployment and a relay between them.
type Bench struct {
	database *Database
	db       *sql.DB
	store    store.Deployment
	prefix   string
	relay    *outbox.Relay
}

// NewBench makes the tables, on a part of the test's Redis that is its own.
func NewBench(tb testing.TB, d *Database) *Bench {
	tb.Helper()
	b := &Bench{database: d, db: d.open(tb), prefix: redistest.Prefix(tb)}
	must(tb, d.Dialect.Migrate(tb.Context(), b.db))
	s, err := redisstore.Open(tb.Context(), redistest.Shared(tb).Client(tb), redisstore.Config{Prefix: b.prefix})
	must(tb, err)
	b.store = s
	b.relay = b.newRelay(tb, b.producer(tb))
	return b
}

func (b *Bench) producer(tb testing.TB) *producer.Producer {
	tb.Helper()
	p, err := producer.New(b.store, producer.Config{})
	must(tb, err)
	return p
}

func (b *Bench) newRelay(tb testing.TB, to outbox.Batcher) *outbox.Relay {
	tb.Helper()
	r, err := outbox.NewRelay(b.db, to, outbox.Config{Dialect: b.database.Dialect, Window: window, Timeout: timeout, Poll: 10 * time.Millisecond})
	must(tb, err)
	return r
}

// Put puts jobs in, in one transaction.
func (b *Bench) Put(tb testing.TB, commit bool, jobs ...admission.Job) {
	tb.Helper()
	tx, err := b.db.BeginTx(tb.Context(), nil)
	must(tb, err)
	for _, job := range jobs {
		_, err := b.database.Dialect.Enqueue(tb.Context(), tx, job)
		must(tb, err)
	}
	if !commit {
		must(tb, tx.Rollback())
		return
	}
	must(tb, tx.Commit())
}

// Once moves what may be moved now.
func (b *Bench) Once(tb testing.TB) {
	tb.Helper()
	must(tb, b.relay.Once(tb.Context()))
}

// Expect says what the outbox holds.
func (b *Bench) Expect(tb testing.TB, rows, held, dead int64) {
	tb.Helper()
	s, err := b.database.Dialect.Status(tb.Context(), b.db)
	must(tb, err)
	if s.Rows != rows || s.Held != held || s.Dead != dead || s.Oldest < 0 || s.Oldest > time.Minute {
		tb.Errorf("the outbox holds %+v, want %d rows, %d held, %d dead", s, rows, held, dead)
	}
}

func (b *Bench) exec(tb testing.TB, query string) {
	tb.Helper()
	_, err := b.db.ExecContext(tb.Context(), query)
	must(tb, err)
}

// Job is one of tenant acme.
func Job(id string) admission.Job {
	j := admission.NewJob("acme", "mail", "send", []byte(`{"to":"you"}`))
	j.ID = id
	return j
}
