//go:build unix

package outbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// The roles of this binary as a process that a test kills.
const (
	roleVariable = "HEADGATE_OUTBOX_ROLE"
	pgVariable   = "HEADGATE_OUTBOX_PG"
	hgVariable   = "HEADGATE_OUTBOX_REDIS"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "application":
		err = application(context.Background())
	case "relay":
		err = relayForever(context.Background())
	default:
		redistest.Main(m)
		return
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func window(context.Context) (time.Duration, error) { return policy.DefaultDedupWindow, nil }

// bench is a database, a deployment and a relay between them.
type bench struct {
	db    *sql.DB
	store store.Deployment
	relay *outbox.Relay
}

func newBench(tb testing.TB, pg *pgtest.Server) *bench {
	tb.Helper()
	b := &bench{db: pg.Open(tb)}
	must(tb, outbox.Migrate(tb.Context(), b.db))
	s, err := redisstore.Open(tb.Context(), redistest.Shared(tb).Client(tb), redisstore.Config{Prefix: redistest.Prefix(tb)})
	must(tb, err)
	b.store = s
	p, err := producer.New(s, producer.Config{})
	must(tb, err)
	b.relay, err = outbox.NewRelay(b.db, p, outbox.Config{Window: window})
	must(tb, err)
	return b
}

func (b *bench) put(tb testing.TB, commit bool, jobs ...admission.Job) {
	tb.Helper()
	tx, err := b.db.BeginTx(tb.Context(), nil)
	must(tb, err)
	for _, job := range jobs {
		_, err := outbox.Enqueue(tb.Context(), tx, job)
		must(tb, err)
	}
	if !commit {
		must(tb, tx.Rollback())
		return
	}
	must(tb, tx.Commit())
}

func (b *bench) once(tb testing.TB) {
	tb.Helper()
	must(tb, b.relay.Once(tb.Context()))
}

func (b *bench) expect(tb testing.TB, rows, held, dead int64) {
	tb.Helper()
	s, err := outbox.StatusOf(tb.Context(), b.db)
	must(tb, err)
	if s.Rows != rows || s.Held != held || s.Dead != dead {
		tb.Errorf("the outbox holds %+v, want %d rows, %d held, %d dead", s, rows, held, dead)
	}
}

func job(id string) admission.Job {
	j := admission.NewJob("acme", "mail", "send", []byte(`{"to":"you"}`))
	j.ID = id
	return j
}

func exec1(tb testing.TB, db *sql.DB, query string) {
	tb.Helper()
	_, err := db.ExecContext(tb.Context(), query)
	must(tb, err)
}

// TestOutbox is one server's worth of the rules, one after the other: to make a server costs more than all of them.
func TestOutbox(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"committed jobs enter, others do not", testCommits},
		{"a late commit of an early number is found", testLateCommit},
		{"what was sent and not deleted is not sent twice", testSentAgain},
		{"what may be forgotten is not sent", testDoubt},
		{"a final refusal holds nobody back", testFinal},
		{"a passing refusal holds back its tenant", testHeld},
		{"one relay works", testStandby},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, pg)
			exec1(t, b.db, "TRUNCATE headgate_outbox, headgate_outbox_dead")
			c.test(t, b)
		})
	}
}

func testCommits(t *testing.T, b *bench) {
	must(t, outbox.Migrate(t.Context(), b.db)) // A second time it finds nothing to do.
	b.put(t, true, job("one"), job("two"))
	b.put(t, false, job("never"))
	b.once(t)
	b.expect(t, 0, 0, 0)
	if s := b.relay.Stats(); s.Admitted != 2 {
		t.Errorf("%+v, want 2 admitted", s)
	}
	_, err := outbox.Enqueue(t.Context(), b.db, admission.NewJob("a:b", "mail", "send", nil))
	if _, ok := errors.AsType[*admission.FieldError](err); !ok {
		t.Errorf("a tenant with a ':' is answered %v", err)
	}
	b.expect(t, 0, 0, 0)
}

func testLateCommit(t *testing.T, b *bench) {
	early, err := b.db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = outbox.Enqueue(t.Context(), early, job("early"))
	must(t, err)
	b.put(t, true, job("late"))
	b.once(t)
	b.expect(t, 0, 0, 0)
	must(t, early.Commit())
	b.expect(t, 1, 0, 0)
	b.once(t)
	if s := b.relay.Stats(); s.Admitted != 2 {
		t.Errorf("%+v, want 2 admitted", s)
	}
}

// testSentAgain: a relay that dies between the call and the deletion leaves the row, marked.
func testSentAgain(t *testing.T, b *bench) {
	b.put(t, true, job("one"))
	b.once(t)
	b.put(t, true, job("one"))
	exec1(t, b.db, "UPDATE headgate_outbox SET sent = now() - interval '2 seconds'")
	b.once(t)
	b.expect(t, 0, 0, 0)
	if s := b.relay.Stats(); s.Admitted != 1 || s.Duplicates != 1 {
		t.Errorf("%+v, want 1 admitted and 1 duplicate", s)
	}
}

func testDoubt(t *testing.T, b *bench) {
	b.put(t, true, job("old"), job("new"))
	exec1(t, b.db, "UPDATE headgate_outbox SET sent = now() - interval '1 hour' WHERE id = 'old'")
	b.once(t)
	b.expect(t, 0, 0, 1)
	all, err := outbox.Dead(t.Context(), b.db, 0, 10)
	must(t, err)
	if s := b.relay.Stats(); len(all) != 1 || all[0].ID != "old" || all[0].Reason != "doubt" || s.Admitted != 1 {
		t.Errorf("%+v are dead, %+v", all, s)
	}
	n, err := outbox.Redrive(t.Context(), b.db, "doubt")
	must(t, err)
	b.once(t)
	b.expect(t, 0, 0, 0)
	if s := b.relay.Stats(); n != 1 || s.Admitted != 2 {
		t.Errorf("%d were redriven, %+v", n, s)
	}
}

func testFinal(t *testing.T, b *bench) {
	late, odd := job("late"), job("odd")
	late.Deadline, odd.Priority = time.Now().Add(-time.Hour), "nosuchclass"
	b.put(t, true, late, odd, job("fine"))
	b.once(t)
	b.expect(t, 0, 0, 2)
	all, err := outbox.Dead(t.Context(), b.db, 0, 10)
	must(t, err)
	if s := b.relay.Stats(); len(all) != 2 || all[0].Reason != "deadline" || !strings.HasPrefix(all[1].Reason, "invalid: ") || s.Admitted != 1 {
		t.Errorf("%+v are dead, %+v", all, s)
	}
}

// refuser refuses one id, as a bucket would, and passes the rest on.
type refuser struct {
	outbox.Batcher

	id   string
	sent []string
}

// EnqueueBatch refuses the id for a quarter of a second.
func (r *refuser) EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error) {
	results, err := r.Batcher.EnqueueBatch(ctx, jobs)
	for i := range jobs {
		r.sent = append(r.sent, jobs[i].ID)
		if jobs[i].ID == r.id {
			v := admission.Verdict{Reason: admission.ReasonLimited, RetryAfter: 250 * time.Millisecond, ID: r.id}
			results[i] = admission.EnqueueResult{Verdict: v, Err: v.Err()}
		}
	}
	return results, err
}

func testHeld(t *testing.T, b *bench) {
	p, err := producer.New(b.store, producer.Config{})
	must(t, err)
	to := &refuser{Batcher: p, id: "first"}
	b.relay, err = outbox.NewRelay(b.db, to, outbox.Config{Window: window})
	must(t, err)
	other, push := job("other"), job("push")
	other.Tenant, push.Queue = "beta", "push"
	b.put(t, true, job("first"), push, other)
	b.once(t)
	b.expect(t, 2, 1, 0) // push asks for something else, so it is in a later call, and that waits; the other tenant's goes.
	to.id = ""
	time.Sleep(300 * time.Millisecond)
	b.once(t)
	b.expect(t, 0, 0, 0)
	if got := strings.Join(to.sent, " "); got != "first other first push" {
		t.Errorf("sent were %s", got)
	}
}

func testStandby(t *testing.T, b *bench) {
	conn, err := b.db.Conn(t.Context())
	must(t, err)
	_, err = conn.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", int64(0x68676f62_00000002))
	must(t, err)
	if err := b.relay.Once(t.Context()); !errors.Is(err, outbox.ErrStandby) {
		t.Errorf("beside another relay: %v", err)
	}
	_, err = conn.ExecContext(t.Context(), "SELECT pg_advisory_unlock_all()")
	must(t, err)
	must(t, conn.Close())
	b.once(t)
}

// application inserts an order and its job in each transaction, and rolls every third back.
func application(ctx context.Context) error {
	for n := 0; ; n++ {
		db, err := sql.Open("pgx", os.Getenv(pgVariable))
		if err != nil {
			return err
		}
		for err == nil {
			n++
			err = order(ctx, db, n)
		}
		_ = db.Close()
		time.Sleep(20 * time.Millisecond)
	}
}

func order(ctx context.Context, db *sql.DB, n int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	id := fmt.Sprintf("%d-%d", os.Getpid(), n)
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1)", id); err != nil {
		return err
	}
	j := job(id)
	j.Tenant = fmt.Sprint("t", n%100) // Each has a limit of its own.
	if _, err := outbox.Enqueue(ctx, tx, j); err != nil {
		return err
	}
	if n%3 == 0 {
		return tx.Rollback()
	}
	return tx.Commit()
}

func relayForever(ctx context.Context) error {
	options := &storeOptions{addr: os.Getenv(hgVariable)}
	db, err := sql.Open("pgx", os.Getenv(pgVariable))
	if err != nil {
		return err
	}
	s, err := options.open(ctx)
	if err != nil {
		return err
	}
	p, err := producer.New(s, producer.Config{})
	if err != nil {
		return err
	}
	r, err := outbox.NewRelay(db, p, outbox.Config{Window: window, Poll: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	fmt.Println("relay runs")
	return r.Run(ctx)
}

// storeOptions is where a process of its own finds the deployment.
type storeOptions struct{ addr string }

func (o *storeOptions) open(ctx context.Context) (store.Deployment, error) {
	var err error
	for range 200 {
		var s store.Deployment
		if s, err = redisstore.Connect(ctx, "redis://"+o.addr, redisstore.Config{}); err == nil {
			return s, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}

// role starts this binary as one of the roles.
func role(tb testing.TB, name, pg, redis string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	c := exec.CommandContext(tb.Context(), self)
	c.Env = append(os.Environ(), roleVariable+"="+name, pgVariable+"="+pg, hgVariable+"="+redis)
	out, err := c.StdoutPipe()
	must(tb, err)
	must(tb, c.Start())
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); { // Its output must not block it.
		}
	}()
	return c
}
