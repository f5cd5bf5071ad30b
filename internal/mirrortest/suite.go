//go:build unix

package mirrortest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/migrate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/mirror"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// Suite holds a mirror to its rules on a database.
func Suite(t *testing.T, d *Database) {
	t.Helper()
	t.Run("what Redis has is copied once", func(t *testing.T) { testCopied(t, d) })
	t.Run("what had gone is told", func(t *testing.T) { testGap(t, d) })
	t.Run("one of two works", func(t *testing.T) { testTwo(t, d) })
	t.Run("a database has one deployment", func(t *testing.T) { testOther(t, d) })
	t.Run("another number of partitions", func(t *testing.T) { testPartitions(t, d) })
	t.Run("a deployment that has moved", func(t *testing.T) { testMoved(t, d) })
	t.Run("an analyst's questions", func(t *testing.T) { testQuestions(t, d) })
}

func (b *Bench) must(tb testing.TB, times int, do func(ctx context.Context) error) {
	tb.Helper()
	for range times {
		must(tb, do(tb.Context()))
	}
}

func testCopied(t *testing.T, d *Database) { //nolint:thelper // It is a test.
	b := NewBench(t, d, nil)
	m := b.Mirror(t, nil)
	must(t, m.Once(t.Context())) // There is nothing yet.
	b.must(t, 2, b.Policy)
	b.must(t, 100, b.Act)
	must(t, m.Once(t.Context()))
	b.Equal(t)
	b.must(t, 1, b.Policy)
	b.must(t, 400, b.Act) // More than a portion, and more calls of an act of which entries are copied.
	must(t, m.Once(t.Context()))
	b.Equal(t)
	had := m.Stats()
	another := b.Mirror(t, nil)
	must(t, another.Once(t.Context())) // It begins where the database says.
	for source, s := range another.Stats().Sources {
		if s.Rows != 0 || s.Gaps != 0 || had.Sources[source].Rows == 0 {
			t.Errorf("%s: %d rows more where nothing is new, %d gaps, after %d", source, s.Rows, s.Gaps, had.Sources[source].Rows)
		}
	}
	all, err := mirror.StatusOf(t.Context(), d.Dialect, b.db)
	must(t, err)
	for _, s := range all {
		if !s.Began || s.Rows == 0 || s.Gaps != 0 || s.Lag > time.Minute {
			t.Errorf("the status is %+v", s)
		}
	}
}

// testGap: transitions that leave their stream while no mirror runs are counted to the last: those that are copied and those that are lost are all.
func testGap(t *testing.T, d *Database) { //nolint:thelper // It is a test.
	b := NewBench(t, d, nil)
	part := b.store.Partitions()[b.store.PartitionOf("smtp")]
	force := func(times int) {
		for n := range times {
			_, err := part.ForceBreaker(t.Context(), "smtp", breaker.Open, time.Minute, store.Intervention{Author: "ada", Reason: fmt.Sprint("force ", n)})
			must(t, err)
			_, err = part.ResetBreaker(t.Context(), "smtp", store.Intervention{Author: "ada", Reason: fmt.Sprint("reset ", n)})
			must(t, err)
		}
	}
	force(2)
	must(t, b.Mirror(t, nil).Once(t.Context()))
	had := len(b.rows(t, `SELECT id FROM headgate_transitions`))
	force(650)
	kept := len(b.transitions(t))
	var told []mirror.Gap
	m := b.Mirror(t, func(c *mirror.Config) { c.OnGap = func(gap mirror.Gap) { told = append(told, gap) } })
	must(t, m.Once(t.Context()))
	const made = 2 * (2 + 650)
	lost := int64(made - had - kept)
	if len(told) != 1 || told[0].Lost != lost || lost <= 0 || told[0].Source != mirror.Transitions || told[0].Reason != mirror.GapTrimmed {
		t.Errorf("told %+v, want %d transitions: of %d %d were copied and %d are kept", told, lost, made, had, kept)
	}
	if s := m.Stats().Sources[mirror.Transitions]; s.Gaps != 1 || s.Lost != uint64(lost) || s.Rows != uint64(kept) { //nolint:gosec // They are few.
		t.Errorf("it counts %+v", s)
	}
	if rows := b.rows(t, `SELECT source, lost, reason FROM headgate_mirror_gaps`); len(rows) != 1 || rows[0] != fmt.Sprintf("transitions|%d|trimmed", lost) {
		t.Errorf("the rows of gaps are %q", rows)
	}
	must(t, b.Mirror(t, nil).Once(t.Context()))
	if rows := b.rows(t, `SELECT source FROM headgate_mirror_gaps`); len(rows) != 1 {
		t.Errorf("one gap is told %d times", len(rows))
	}
}

// AuditGap tests that entries that leave the audit while no mirror runs are counted to the last. It makes 10,060 of them.
func AuditGap(t *testing.T, d *Database) {
	t.Helper()
	b := NewBench(t, d, nil)
	b.must(t, 1, b.Policy)
	b.must(t, 3, b.Act)
	must(t, b.Mirror(t, nil).Once(t.Context()))
	const kept, more = 10_000, 10_060
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for n := range more / 4 {
				by := store.Intervention{Author: "ada", Reason: fmt.Sprint("pause ", w, " ", n)}
				if _, err := b.store.Partitions()[0].Pause(t.Context(), store.QueueGate("mail"), time.Minute, by); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	m := b.Mirror(t, nil)
	must(t, m.Once(t.Context()))
	const lost = more - kept // Those that are there are the last.
	if s := m.Stats().Sources[mirror.Audit]; s.Gaps != 1 || s.Lost != lost || s.Rows != kept {
		t.Errorf("it counts %+v, want %d lost and %d rows", s, lost, kept)
	}
	if rows := b.rows(t, `SELECT source, part, lost, reason FROM headgate_mirror_gaps`); len(rows) != 1 || rows[0] != fmt.Sprintf("audit|0|%d|trimmed", lost) {
		t.Errorf("the rows of gaps are %q", rows)
	}
}

// testTwo: of two that run on one database one works; when it ends the other one goes on.
func testTwo(t *testing.T, d *Database) { //nolint:thelper // It is a test.
	b := NewBench(t, d, nil)
	b.must(t, 1, b.Policy)
	var mirrors [2]*mirror.Mirror
	var stops [2]context.CancelFunc
	var all sync.WaitGroup
	for i := range mirrors {
		mirrors[i] = b.Mirror(t, nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		stops[i] = stop
		all.Go(func() {
			if err := mirrors[i].Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	works := func(i int) bool { return mirrors[i].Stats().Working }
	b.until(t, "one works and one stands by", func() bool {
		return works(0) != works(1) && (mirrors[0].Stats().Sources[mirror.Audit].Standby || mirrors[1].Stats().Sources[mirror.Audit].Standby)
	})
	if err := b.Mirror(t, nil).Once(t.Context()); !errors.Is(err, mirror.ErrStandby) {
		t.Errorf("a third one: %v", err)
	}
	b.must(t, 50, b.Act)
	first := 0
	if works(1) {
		first = 1
	}
	stops[first]()
	b.until(t, "the other one works", func() bool { return works(1 - first) })
	b.must(t, 50, b.Act)
	b.until(t, "all is copied", func() bool {
		return len(b.rows(t, `SELECT id FROM headgate_audit`)) == len(b.audit(t))
	})
	stops[1-first]()
	all.Wait()
	b.until(t, "the database knows that nobody works", func() bool { return b.Mirror(t, nil).Once(t.Context()) == nil }) // Its connection was cut.
	b.Equal(t)
}

// until waits for what must come.
func (b *Bench) until(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("after a minute: not that %s", what)
		}
	}
}

// testPartitions: a deployment that is divided anew is copied on, each entry once, whatever partition has it by then.
func testPartitions(t *testing.T, d *Database) { //nolint:thelper // It is a test.
	b := NewBench(t, d, nil)
	b.must(t, 1, b.Policy)
	b.must(t, 60, b.Act)
	must(t, b.Mirror(t, nil).Once(t.Context()))
	b.must(t, 60, b.Act) // While no mirror runs.
	client := redistest.Shared(t).Client(t)
	m, err := migrate.Open(t.Context(), client, client, migrate.Config{Prefix: b.prefix, Partitions: 4, Update: rollout.Renew})
	must(t, err)
	_, err = m.Run(t.Context())
	must(t, err)
	b.store, err = redisstore.Open(t.Context(), client, redisstore.Config{Prefix: b.prefix})
	must(t, err)
	if n := len(b.store.Partitions()); n != 4 {
		t.Fatalf("there are %d partitions", n)
	}
	b.must(t, 60, b.Act)
	again := b.Mirror(t, nil)
	must(t, again.Once(t.Context()))
	b.Equal(t)
	for source, s := range again.Stats().Sources {
		if s.Gaps != 0 {
			t.Errorf("%s: %d gaps, and nothing had gone", source, s.Gaps)
		}
	}
}

// testMoved has a mirror run while the deployment moves to another Redis: it ends, and does not take what has moved for gone.
func testMoved(t *testing.T, d *Database) { //nolint:thelper // It is a test.
	b := NewBench(t, d, nil)
	b.must(t, 3, b.Policy)
	b.must(t, 20, b.Act)
	running := b.Mirror(t, nil)
	must(t, running.Once(t.Context()))
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("it did not end in a minute"))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	there := redistest.Start(t, redistest.Options{})
	m, err := migrate.Open(ctx, redistest.Shared(t).Client(t), there.Client(t), migrate.Config{Prefix: b.prefix, Partitions: 2, Target: there.URL(), Update: rollout.Renew})
	must(t, err)
	_, err = m.Run(ctx)
	must(t, err)
	if err := <-ended; !errors.Is(err, admission.ErrMoved) {
		t.Errorf("it ended with %v", err)
	}
	if err := running.Once(ctx); !errors.Is(err, admission.ErrMoved) {
		t.Errorf("another time: %v", err)
	}
	if gaps := b.rows(t, `SELECT source, reason FROM headgate_mirror_gaps`); len(gaps) > 0 {
		t.Errorf("as gone are noted %s", gaps)
	}
	b.store, err = redisstore.Open(ctx, there.Client(t), redisstore.Config{Prefix: b.prefix})
	must(t, err)
	must(t, b.Mirror(t, nil).Once(ctx))
	if gaps := b.rows(t, `SELECT source, reason FROM headgate_mirror_gaps`); len(gaps) > 0 {
		t.Errorf("as gone are noted there %s", gaps)
	}
}

func testOther(t *testing.T, d *Database) { //nolint:thelper // It is a test.
	b := NewBench(t, d, nil)
	must(t, b.Mirror(t, nil).Once(t.Context()))
	other := b.Mirror(t, func(c *mirror.Config) { c.Prefix = "other" })
	for _, err := range []error{other.Once(t.Context()), other.Run(t.Context())} {
		if _, ok := errors.AsType[*mirror.OtherError](err); !ok {
			t.Errorf("a mirror of another deployment: %v", err)
		}
	}
}

// testQuestions runs the queries of docs/guides/mirror.md.
func testQuestions(t *testing.T, d *Database) { //nolint:thelper // It is a test.
	b := NewBench(t, d, nil)
	b.must(t, 3, b.Policy)
	b.must(t, 40, b.Act)
	must(t, b.Mirror(t, nil).Once(t.Context()))
	for _, query := range Questions {
		if rows := b.rows(t, query); len(rows) == 0 {
			t.Errorf("nothing answers\n%s", query)
		}
	}
}

// Questions are those of docs/guides/mirror.md.
var Questions = []string{
	`SELECT tenant, sum(committed) AS tokens, sum(jobs) AS jobs FROM headgate_usage
WHERE day >= '2026-01-01' GROUP BY tenant ORDER BY tokens DESC LIMIT 10`,
	`SELECT a.at, a.author, a.reason, v.document FROM headgate_audit a JOIN headgate_policy_versions v ON v.version = a.to_version
WHERE a.action = 'policy' AND a.author = 'ada' ORDER BY a.at DESC`,
	`SELECT downstream, count(*) AS opened, max(at) AS last FROM headgate_transitions
WHERE to_state = 'open' GROUP BY downstream ORDER BY opened DESC`,
}
