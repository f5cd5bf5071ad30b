//go:build unix

package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/store/redisstore"
)

// Suite is one database's worth of the rules, one after the other: to make a server costs more than all of them.
func Suite(t *testing.T, d *Database) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, *Bench)
	}{
		{"committed jobs enter, others do not", testCommits},
		{"a late commit of an early number is found", testLateCommit},
		{"what was sent and not deleted is not sent twice", testSentAgain},
		{"a relay is killed after it sent", testKilled},
		{"a batch without answers is sent again", testUnanswered},
		{"what may be forgotten is not sent", testDoubt},
		{"a relay of before a migration ends", testMigrated},
		{"a final refusal holds nobody back", testFinal},
		{"a passing refusal holds back its tenant", testHeld},
		{"the jobs of a tenant go in order", testOrder},
		{"one relay works", testStandby},
		{"names are told apart to the byte", testNames},
		{"headers keep their bytes", testHeaders},
		{"the tables have versions", testVersions},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBench(t, d)
			b.exec(t, "DELETE FROM headgate_outbox")
			b.exec(t, "DELETE FROM headgate_outbox_dead")
			c.test(t, b)
		})
	}
}

func testCommits(t *testing.T, b *Bench) {
	d := b.database.Dialect
	b.Put(t, true, Job("one"), Job("two"))
	b.Put(t, false, Job("never"))
	b.Once(t)
	b.Expect(t, 0, 0, 0)
	if s := b.relay.Stats(); s.Admitted != 2 {
		t.Errorf("%+v, want 2 admitted", s)
	}
	_, err := d.Enqueue(t.Context(), b.db, admission.NewJob("a:b", "mail", "send", nil))
	if _, ok := errors.AsType[*admission.FieldError](err); !ok {
		t.Errorf("a tenant with a ':' is answered %v", err)
	}
	b.Expect(t, 0, 0, 0)
}

func testLateCommit(t *testing.T, b *Bench) {
	if b.database.Dialect == outbox.SQLite {
		t.Skip("who has a number there is the only one who writes, so numbers are in the order of commits")
	}
	early, err := b.db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = b.database.Dialect.Enqueue(t.Context(), early, Job("early"))
	must(t, err)
	late := make([]admission.Job, 50) // With as many a database may read the whole table, where a lock is.
	for i := range late {
		late[i] = Job(fmt.Sprint("late-", i))
		late[i].Tenant = fmt.Sprint("t", i%5) // Each has a limit of its own.
	}
	b.Put(t, true, late...)
	began := time.Now()
	b.Once(t)
	b.Expect(t, 0, 0, 0)
	must(t, early.Commit())
	b.Expect(t, 1, 0, 0)
	b.Once(t)
	if s, took := b.relay.Stats(), time.Since(began); s.Admitted != 51 || took > 20*time.Second {
		t.Errorf("%+v after %s, want 51 admitted", s, took)
	}
}

// testSentAgain: a relay that dies between the call and the deletion leaves the row, marked.
func testSentAgain(t *testing.T, b *Bench) {
	b.Put(t, true, Job("one"))
	b.Once(t)
	b.Put(t, true, Job("one"))
	b.exec(t, "UPDATE headgate_outbox SET sent = "+ago(b.database.Dialect, 2))
	b.Once(t)
	b.Expect(t, 0, 0, 0)
	if s := b.relay.Stats(); s.Admitted != 1 || s.Duplicates != 1 {
		t.Errorf("%+v, want 1 admitted and 1 duplicate", s)
	}
}

func testKilled(t *testing.T, b *Bench) {
	b.Put(t, true, Job("one"), Job("two"))
	killed := start(t, roleHang, b.database, b.address(t))
	if said := <-killed.said; said != saidSent {
		t.Fatalf("the relay says %q", said)
	}
	killed.kill(t)
	var marked int
	err := b.db.QueryRowContext(t.Context(), "SELECT count(*) FROM headgate_outbox WHERE sent IS NOT NULL").Scan(&marked)
	if must(t, err); marked != 2 {
		t.Errorf("%d rows are marked as sent, want 2", marked)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); pause(10 * time.Millisecond) {
		if err = b.relay.Once(t.Context()); !errors.Is(err, outbox.ErrStandby) { // The database may not know yet that it is dead.
			break
		}
	}
	must(t, err)
	b.Expect(t, 0, 0, 0)
	if s := b.relay.Stats(); s.Admitted != 0 || s.Duplicates != 2 {
		t.Errorf("%+v, want 2 duplicates", s)
	}
}

// mute sends and gives no answer.
type mute struct{ outbox.Batcher }

func (m mute) EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error) {
	_, err := m.Batcher.EnqueueBatch(ctx, jobs)
	return nil, err
}

func testUnanswered(t *testing.T, b *Bench) {
	b.Put(t, true, Job("one"))
	if err := b.newRelay(t, mute{b.producer(t)}).Once(t.Context()); err == nil || !strings.Contains(err.Error(), "answers on 0 of 1 jobs") {
		t.Errorf("without an answer: %v", err)
	}
	b.Expect(t, 1, 0, 0)
	b.Once(t)
	b.Expect(t, 0, 0, 0)
	if s := b.relay.Stats(); s.Duplicates != 1 {
		t.Errorf("%+v, want 1 duplicate", s)
	}
}

func testDoubt(t *testing.T, b *Bench) {
	d := b.database.Dialect
	b.Put(t, true, Job("old"), Job("new"))
	b.exec(t, "UPDATE headgate_outbox SET sent = "+ago(d, 3600)+" WHERE id = 'old'")
	b.Once(t)
	b.Expect(t, 0, 0, 1)
	all, err := d.Dead(t.Context(), b.db, 0, 10)
	must(t, err)
	if s := b.relay.Stats(); len(all) != 1 || all[0].ID != "old" || all[0].Reason != "doubt" || s.Admitted != 1 ||
		time.Since(all[0].Created).Abs() > time.Minute || all[0].Died.Before(all[0].Created) {
		t.Errorf("%+v are dead, %+v", all, s)
	}
	if n, err := d.Redrive(t.Context(), b.db, "deadline"); n != 0 || err != nil {
		t.Errorf("of another reason %d were redriven, %v", n, err)
	}
	n, err := d.Redrive(t.Context(), b.db, "doubt")
	must(t, err)
	b.Once(t)
	b.Expect(t, 0, 0, 0)
	if s := b.relay.Stats(); n != 1 || s.Admitted != 2 {
		t.Errorf("%d were redriven, %+v", n, s)
	}
}

// testMigrated: nothing is sent there, so no row is in doubt, and none dies of that.
func testMigrated(t *testing.T, b *Bench) {
	state, client := redisstore.Keys(b.store).State(), redistest.Shared(t).Client(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("it did not end in a minute"))
	defer cancel()
	b.Put(t, true, Job("one"))
	for layout, want := range map[string]error{"3": admission.ErrPartitions, ">redis://there:6379": admission.ErrMoved} {
		must(t, client.HSet(ctx, state, "partitions", layout).Err())
		if err := b.newRelay(t, b.producer(t)).Run(ctx); !errors.Is(err, want) {
			t.Errorf("it ended with %v", err)
		}
		var marked int
		err := b.db.QueryRowContext(ctx, "SELECT count(*) FROM headgate_outbox WHERE sent IS NOT NULL").Scan(&marked)
		if must(t, err); marked != 0 {
			t.Errorf("%d rows are marked as sent, and nothing was", marked)
		}
	}
	must(t, client.HDel(ctx, state, "partitions").Err())
	b.Once(t)
	b.Expect(t, 0, 0, 0)
}

func testFinal(t *testing.T, b *Bench) {
	late, odd := Job("late"), Job("odd")
	late.Deadline, odd.Priority = time.Now().Add(-time.Hour), "nosuchclass"
	b.Put(t, true, late, odd, Job("fine"))
	b.Once(t)
	b.Expect(t, 0, 0, 2)
	all, err := b.database.Dialect.Dead(t.Context(), b.db, 0, 10)
	must(t, err)
	if s := b.relay.Stats(); len(all) != 2 || all[0].Reason != "deadline" || !strings.HasPrefix(all[1].Reason, "invalid: ") || s.Admitted != 1 {
		t.Errorf("%+v are dead, %+v", all, s)
	}
	n, err := b.database.Dialect.Redrive(t.Context(), b.db, "")
	must(t, err)
	b.Expect(t, 2, 0, 0)
	b.Once(t)
	if b.Expect(t, 0, 0, 2); n != 2 {
		t.Errorf("%d were redriven", n)
	}
}

// refuser refuses one id, as a bucket would, and passes the rest on.
type refuser struct {
	outbox.Batcher

	id   string
	sent []string
}

// refusedFor is how long the id is refused.
const refusedFor = time.Second

// EnqueueBatch refuses the id for refusedFor.
func (r *refuser) EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error) {
	results, err := r.Batcher.EnqueueBatch(ctx, jobs)
	for i := range jobs {
		r.sent = append(r.sent, jobs[i].ID)
		if jobs[i].ID == r.id {
			v := admission.Verdict{Reason: admission.ReasonLimited, RetryAfter: refusedFor, ID: r.id}
			results[i] = admission.EnqueueResult{Verdict: v, Err: v.Err()}
		}
	}
	return results, err
}

func testHeld(t *testing.T, b *Bench) {
	to := &refuser{Batcher: b.producer(t), id: "first"}
	b.relay = b.newRelay(t, to)
	other, push, typed := Job("other"), Job("push"), Job("typed")
	other.Tenant, push.Queue, typed.Type = "beta", "push", "receipt"
	b.Put(t, true, Job("first"), typed, push, other)
	asked := time.Now()
	b.Once(t)
	b.Expect(t, 3, 1, 0) // push and typed ask for something else, so they are in later calls, and those wait; the other tenant's goes.
	b.exec(t, "UPDATE headgate_outbox SET created = "+ago(b.database.Dialect, 5))
	if lag, err := b.relay.Lag(t.Context()); err != nil || lag < 4*time.Second || lag > time.Minute {
		t.Errorf("the head of the outbox has waited for %s, %v", lag, err)
	}
	to.id = ""
	b.Once(t)
	if took := time.Since(asked); len(to.sent) != 2 && took < refusedFor {
		t.Errorf("sent were %s after %v, before the time", to.sent, took)
	}
	for began := time.Now(); len(to.sent) < 5 && time.Since(began) < 10*time.Second; pause(10 * time.Millisecond) {
		b.Once(t)
	}
	b.Expect(t, 0, 0, 0)
	if lag, err := b.relay.Lag(t.Context()); lag != 0 || err != nil {
		t.Errorf("an empty outbox is late by %s, %v", lag, err)
	}
	if got := strings.Join(to.sent, " "); got != "first other first typed push" {
		t.Errorf("sent were %s", got)
	}
}

func testOrder(t *testing.T, b *Bench) {
	to := &refuser{Batcher: b.producer(t)}
	b.relay = b.newRelay(t, to)
	var want [3][]string
	for i := range 60 {
		j := Job(fmt.Sprint("job-", i))
		j.Tenant, j.Queue = fmt.Sprint("t", i%3), fmt.Sprint("q", i%7)
		want[i%3] = append(want[i%3], j.ID)
		b.Put(t, true, j)
	}
	b.Once(t)
	var got [3][]string
	for _, id := range to.sent {
		var i int
		_, err := fmt.Sscanf(id, "job-%d", &i)
		must(t, err)
		got[i%3] = append(got[i%3], id)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("sent were %v, want %v", got, want)
	}
}

// stuck takes jobs and answers when it is told to.
type stuck struct {
	outbox.Batcher

	took, answer chan struct{}
}

func (s *stuck) EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error) {
	results, err := s.Batcher.EnqueueBatch(ctx, jobs)
	s.took <- struct{}{}
	<-s.answer
	return results, err
}

func testStandby(t *testing.T, b *Bench) {
	to := &stuck{Batcher: b.producer(t), took: make(chan struct{}), answer: make(chan struct{})}
	first := b.newRelay(t, to)
	b.Put(t, true, Job("one"))
	ended := make(chan error, 1)
	go func() { ended <- first.Once(t.Context()) }()
	<-to.took
	if err := b.relay.Once(t.Context()); !errors.Is(err, outbox.ErrStandby) || b.relay.Stats().Working || !first.Stats().Working {
		t.Errorf("beside another relay: %v", err)
	}
	if b.database.Dialect == outbox.SQLite {
		testOverdue(t, b, to, ended)
		return
	}
	to.answer <- struct{}{}
	must(t, <-ended)
	b.Once(t)
	if s, one := b.relay.Stats(), first.Stats(); s.Admitted+s.Duplicates != 0 || one.Admitted != 1 || one.Working {
		t.Errorf("the second has done %+v, the first %+v", s, one)
	}
}

// testOverdue: who took longer than its lease settles nothing, for another one works.
func testOverdue(t *testing.T, b *Bench, to *stuck, ended <-chan error) {
	t.Helper()
	b.exec(t, "UPDATE headgate_outbox_relay SET until = 0")
	next := b.newRelay(t, &refuser{Batcher: b.producer(t), id: "one"})
	must(t, next.Once(t.Context()))
	b.Expect(t, 1, 1, 0)
	to.answer <- struct{}{}
	if err := <-ended; !errors.Is(err, outbox.ErrStandby) {
		t.Errorf("the first ends with %v", err)
	}
	b.Expect(t, 1, 1, 0)
}

func testNames(t *testing.T, b *Bench) {
	to := &refuser{Batcher: b.producer(t), id: "A"}
	b.relay = b.newRelay(t, to)
	upper, lower := Job("A"), Job("a")
	upper.Tenant, lower.Tenant = "ACME", "acme"
	upper.Payload = []byte(`{"to":"Zoë 𝄞\u0000"}`)
	b.Put(t, true, upper)
	b.Once(t)
	b.Put(t, true, lower)
	b.Once(t)
	b.Expect(t, 1, 1, 0) // The tenant of another case is another one, and does not wait.
}

// recorder keeps what was sent.
type recorder struct {
	outbox.Batcher

	sent []admission.Job
}

// EnqueueBatch keeps them, and sends them on.
func (r *recorder) EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error) {
	r.sent = append(r.sent, jobs...)
	return r.Batcher.EnqueueBatch(ctx, jobs)
}

func testHeaders(t *testing.T, b *Bench) {
	to := &recorder{Batcher: b.producer(t)}
	b.relay = b.newRelay(t, to)
	job := Job("one")
	job.Headers = map[string]string{"text": "Zoë", "bytes": "\x00\x01\xfe\xff", "empty": ""}
	b.Put(t, true, job)
	b.Once(t)
	if len(to.sent) != 1 || !maps.Equal(to.sent[0].Headers, job.Headers) {
		t.Errorf("%+v were sent, want the headers %q", to.sent, job.Headers)
	}
}

func testVersions(t *testing.T, b *Bench) {
	d := b.database.Dialect
	for _, table := range []string{"headgate_outbox", "headgate_outbox_dead", "headgate_outbox_version"} {
		b.exec(t, "DROP TABLE "+table)
	}
	if d == outbox.SQLite {
		b.exec(t, "DROP TABLE headgate_outbox_relay")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := d.Migrate(t.Context(), b.db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	b.Put(t, true, Job("one"))
	b.Once(t)
	b.Expect(t, 0, 0, 0)
	b.exec(t, "INSERT INTO headgate_outbox_version VALUES (99)")
	if err := d.Migrate(t.Context(), b.db); err == nil || !strings.Contains(err.Error(), "version 99, this release knows 0 to 1") {
		t.Errorf("tables of a newer release: %v", err)
	}
	b.exec(t, "DELETE FROM headgate_outbox_version WHERE version = 99")
}
