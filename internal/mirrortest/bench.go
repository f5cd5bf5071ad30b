//go:build unix

package mirrortest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/mirror"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/policy"
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

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// tables are all that a mirror has.
var tables = []string{
	"headgate_audit", "headgate_policy_versions", "headgate_usage", "headgate_transitions", "headgate_anomalies", "headgate_mirror_gaps", "headgate_mirror_place", "headgate_mirror_of",
	"headgate_mirror_version",
}

// open returns connections of the test's own.
func (d *Database) open(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open(d.Driver, d.Source)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Bench is a deployment of two partitions and an empty database.
type Bench struct {
	database *Database
	db       *sql.DB
	store    store.Deployment
	prefix   string
	n        int // numbers what is done
}

// NewBench is on a part of the test's Redis that is its own, or on a Redis of its own.
func NewBench(tb testing.TB, d *Database, own *redistest.Server) *Bench {
	tb.Helper()
	b := &Bench{database: d, db: d.open(tb), prefix: redistest.Prefix(tb)}
	server := own
	if server == nil {
		server = redistest.Shared(tb)
	}
	for _, table := range append(slices.Clone(tables), "headgate_mirror_lock") {
		_, err := b.db.ExecContext(tb.Context(), "DROP TABLE IF EXISTS "+table)
		must(tb, err)
	}
	must(tb, mirror.Migrate(tb.Context(), d.Dialect, b.db))
	s, err := redisstore.Connect(tb.Context(), "redis://"+server.Addr(), redisstore.Config{Prefix: b.prefix, Partitions: 2})
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	b.store = s
	return b
}

// Mirror returns one that polls often. It tells gaps to the function, if there is one.
func (b *Bench) Mirror(tb testing.TB, change func(c *mirror.Config)) *mirror.Mirror {
	tb.Helper()
	config := mirror.Config{Dialect: b.database.Dialect, Prefix: b.prefix, Poll: 10 * time.Millisecond, Usage: 10 * time.Millisecond}
	if change != nil {
		change(&config)
	}
	m, err := mirror.New(b.db, b.store, config)
	must(tb, err)
	return m
}

// Policy stores one more version.
func (b *Bench) Policy(ctx context.Context) error {
	b.n++
	_, err := rollout.Change(ctx, b.store, rollout.Edit{Author: "ada", Reason: fmt.Sprint("edit ", b.n), Expected: rollout.AnyVersion}, func(p policy.Policy) (policy.Policy, error) {
		p.Usage = &policy.UsageRules{}
		p.Global = admission.PerSecond(admission.Tokens(10_000_000 + b.n))
		return p, nil
	})
	return err
}

// awkward is a reason that PostgreSQL would refuse as it is.
const awkward = "it's \x00 \xff \U0001F6D1"

// Act does something of each kind: calls of one act, too, which are one entry.
func (b *Bench) Act(ctx context.Context) error {
	b.n++
	n := b.n
	by := store.Intervention{Author: "ada", Reason: fmt.Sprint(awkward, n)}
	act := store.Intervention{Author: "bob", Reason: "in pages", Act: fmt.Sprint("act", n/3)}
	tenant, queue := fmt.Sprint("t", n%7), fmt.Sprint("q", n%3)
	part := b.store.Partitions()[b.store.PartitionOf(tenant)]
	_, paused := b.store.Pause(ctx, store.QueueGate(queue), time.Minute, by)
	_, again := b.store.Pause(ctx, store.QueueGate("mail"), time.Minute, act)
	_, forced := b.store.ForceBreaker(ctx, fmt.Sprint("d", n%4), []breaker.State{breaker.Open, breaker.Closed}[n/4%2], time.Minute, by)
	version, read := b.store.PolicyInForce(ctx)
	_, _, took := part.Take(ctx, version, store.Question{Tenant: tenant, Queue: queue, Class: admission.Medium, Cost: admission.Tokens(1 + n%9), Usage: 100})
	if n%4 != 0 { // Redis keeps 1,000 of them.
		return errors.Join(paused, again, forced, read, took)
	}
	_, noted := b.store.NoteAnomalies(ctx, []store.Anomaly{{
		Kind: store.AnomalyKinds[n%len(store.AnomalyKinds)], Of: "tenant", Name: fmt.Sprint(tenant, "-", n), Minute: time.Now().Truncate(time.Minute), Rate: float64(n), Usual: 2.5, Deviation: 0.125, Score: float64(n) / 4,
	}})
	return errors.Join(paused, again, forced, read, took, noted)
}

// at is a time of a row as text.
func (b *Bench) at(column string) string {
	switch b.database.Dialect {
	case outbox.MySQL:
		return "DATE_FORMAT(" + column + ", '%Y-%m-%d %H:%i:%s.%f')"
	case outbox.SQLite:
		return column
	default:
		return "to_char(" + column + " AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
	}
}

// rows are what a query returns, each as one line, sorted.
func (b *Bench) rows(tb testing.TB, query string) (lines []string) {
	tb.Helper()
	rows, err := b.db.QueryContext(tb.Context(), query)
	must(tb, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(tb, err)
	for rows.Next() {
		values, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		must(tb, rows.Scan(to...))
		line := make([]string, len(columns))
		for i := range values {
			line[i] = values[i].String
		}
		lines = append(lines, strings.Join(line, "|"))
	}
	must(tb, rows.Err())
	slices.Sort(lines)
	return lines
}

func when(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05.000000")
}

func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Equal holds what the database has equal to what Redis has.
func (b *Bench) Equal(tb testing.TB) {
	tb.Helper()
	for name, pair := range map[string][2][]string{
		"audit": {b.audit(tb), b.rows(tb, `SELECT `+b.at("at")+`, action, name, jobs, downstream, lasts_us, from_version, to_version, restored, author, reason, changes FROM headgate_audit`)},
		"transitions": {b.transitions(tb), b.rows(tb, `SELECT part, id, `+b.at("at")+`, downstream, from_state, to_state, period, cause, reason, workers, callers, `+b.at("ends")+
			` FROM headgate_transitions`)},
		"versions":  {b.versions(tb), b.rows(tb, `SELECT version, `+b.at("at")+`, author, reason, restored, document FROM headgate_policy_versions`)},
		"anomalies": {b.anomalies(tb), b.rows(tb, `SELECT id, `+b.at("at")+`, kind, of_what, name, `+b.at("minute")+`, rate * 8, usual * 8, deviation * 8, score * 8 FROM headgate_anomalies`)},
		"usage":     {b.usage(tb), b.rows(tb, `SELECT tenant, queue, jobs, calls, reserved, refunded, added, committed FROM headgate_usage`)},
	} {
		want, got := pair[0], pair[1]
		if len(want) == 0 {
			tb.Errorf("Redis has no %s", name)
		}
		if slices.Equal(want, got) {
			continue
		}
		tb.Errorf("%s: Redis has %d, the database %d", name, len(want), len(got))
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || want[i] != got[i] {
				tb.Errorf("the first that differs:\n%q\n%q", want[min(i, len(want)-1)], append(got, "")[min(i, len(got))])
				break
			}
		}
	}
}

func (b *Bench) audit(tb testing.TB) (lines []string) {
	tb.Helper()
	for q := (store.AuditQuery{Limit: store.MaxPage}); ; {
		page, err := b.store.Audit(tb.Context(), q)
		must(tb, err)
		for _, e := range page.Entries {
			lines = append(lines, fmt.Sprint(when(e.At), "|", e.Action, "|", e.Name, "|", e.Jobs, "|", e.Downstream, "|", e.For.Microseconds(), "|", e.From, "|", e.To, "|",
				e.Restored, "|", e.Author, "|", clean(e.Reason), "|", string(e.Changes)))
		}
		if q.Cursor = page.Cursor; q.Cursor == "" {
			slices.Sort(lines)
			return lines
		}
	}
}

func (b *Bench) transitions(tb testing.TB) (lines []string) {
	tb.Helper()
	for i, part := range b.store.Partitions() {
		for after := "0-0"; ; {
			events, position, err := part.BreakerEvents(tb.Context(), after, -1)
			must(tb, err)
			for _, e := range events {
				lines = append(lines, fmt.Sprint(i, "|", e.ID, "|", when(e.At), "|", e.Downstream, "|", e.From, "|", e.To, "|", e.Period, "|", e.Cause, "|", clean(e.Reason), "|",
					e.Workers, "|", e.Callers, "|", when(e.Until)))
			}
			if after = position; len(events) == 0 {
				break
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func (b *Bench) anomalies(tb testing.TB) (lines []string) {
	tb.Helper()
	for after := ""; ; {
		of, err := b.store.AnomaliesAfter(tb.Context(), after, 100)
		must(tb, err)
		for i := range of.Entries {
			e := &of.Entries[i]
			lines = append(lines, fmt.Sprintf("%s|%s|%s|%s|%s|%s|%g|%g|%g|%g", e.ID, when(e.At), e.Kind, e.Of, e.Name, when(e.Minute), 8*e.Rate, 8*e.Usual, 8*e.Deviation, 8*e.Score))
		}
		if after = of.Position; len(of.Entries) < 100 {
			slices.Sort(lines)
			return lines
		}
	}
}

func (b *Bench) versions(tb testing.TB) (lines []string) {
	tb.Helper()
	all, err := b.store.PolicyVersions(tb.Context())
	must(tb, err)
	for _, v := range all {
		document, err := b.store.PolicyVersion(tb.Context(), v.To)
		must(tb, err)
		lines = append(lines, fmt.Sprint(v.To, "|", when(v.At), "|", v.Author, "|", v.Reason, "|", v.Restored, "|", string(document)))
	}
	slices.Sort(lines)
	return lines
}

func (b *Bench) usage(tb testing.TB) (lines []string) {
	tb.Helper()
	for _, at := range []time.Time{time.Now().Add(-24 * time.Hour), time.Now()} {
		all, err := b.store.Usage(tb.Context(), store.UsageQuery{Day: at})
		must(tb, err)
		for _, u := range all {
			lines = append(lines, fmt.Sprintf("%s|%s|%d|%d|%d|%d|%d|%d", u.Tenant, u.Queue, u.Jobs, u.Calls, u.Reserved, u.Refunded, u.Added, u.Committed()))
		}
	}
	slices.Sort(lines)
	return lines
}
