//go:build unix

package inserttx

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/outboxtest"
	"github.com/headgate/headgate/outbox"
)

func TestMain(m *testing.M) { outboxtest.Main(m) }

// orders is how many transactions a round has; writers how many connections make them.
const (
	orders  = 10_000
	writers = 8
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// mail is the job, to either.
type mail struct {
	To string `json:"to"`
}

func (mail) Kind() string { return "send" }

// insert writes a job within a transaction.
type insert func(ctx context.Context, tx pgx.Tx, n int64) error

func headgate(ctx context.Context, tx pgx.Tx, n int64) error {
	job := admission.NewJob(fmt.Sprint("t", n%100), "mail", "send", []byte(`{"to":"you"}`))
	_, err := outbox.Enqueue(ctx, outbox.ExecFunc(func(ctx context.Context, query string, args ...any) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	}), job)
	return err
}

func newRiver(tb testing.TB, pool *pgxpool.Pool) insert {
	tb.Helper()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	must(tb, err)
	_, err = migrator.Migrate(tb.Context(), rivermigrate.DirectionUp, nil)
	must(tb, err)
	client, err := river.NewClient(driver, &river.Config{})
	must(tb, err)
	return func(ctx context.Context, tx pgx.Tx, _ int64) error {
		_, err := client.InsertTx(ctx, tx, mail{To: "you"}, &river.InsertOpts{Queue: "mail"})
		return err
	}
}

// place commits orders, each with its job.
func place(ctx context.Context, pool *pgxpool.Pool, job insert) error {
	var number atomic.Int64
	var all errgroup.Group
	for range writers {
		all.Go(func() error {
			for n := number.Add(1); n <= orders; n = number.Add(1) {
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "INSERT INTO orders (number) VALUES ($1)", n); err != nil {
						return err
					}
					return job(ctx, tx, n)
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// BenchmarkInsertTx commits orders without a job, with one in the outbox and with one of river's.
func BenchmarkInsertTx(b *testing.B) {
	server := dbtest.PostgreSQL(b)
	must(b, outbox.Migrate(b.Context(), server.Open(b)))
	pool, err := pgxpool.New(b.Context(), server.URL()+" pool_max_conns=8")
	must(b, err)
	defer pool.Close()
	_, err = pool.Exec(b.Context(), "CREATE TABLE orders (number bigint)")
	must(b, err)
	for _, row := range []struct {
		name string
		job  insert
	}{
		{"none", func(context.Context, pgx.Tx, int64) error { return nil }},
		{"headgate", headgate},
		{"river", newRiver(b, pool)},
	} {
		b.Run(row.name, func(b *testing.B) {
			began := time.Now()
			for b.Loop() {
				must(b, place(b.Context(), pool, row.job))
			}
			b.ReportMetric(float64(orders*b.N)/time.Since(began).Seconds(), "orders/s")
		})
	}
	counts(b, server.Open(b))
}

// counts fails where a job is missing.
func counts(b *testing.B, db *sql.DB) {
	b.Helper()
	for _, table := range []string{"headgate_outbox", "river_job"} {
		var n int64
		must(b, db.QueryRowContext(b.Context(), "SELECT count(*) FROM "+table).Scan(&n))
		if n < orders || n%orders != 0 {
			b.Errorf("%s has %d rows", table, n)
		}
	}
}

// BenchmarkRelay moves rows from the outbox into Headgate.
func BenchmarkRelay(b *testing.B) {
	s := dbtest.PostgreSQL(b)
	outboxtest.BenchmarkRelay(b, &outboxtest.Database{Dialect: outbox.PostgreSQL, Driver: s.Driver(), Source: s.Source()})
}
