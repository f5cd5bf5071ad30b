package crash_test

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

const (
	stubbornLease = 500 * time.Millisecond
	stubbornJobs  = 10
)

// outcomes that a worker may ask for.
var everyOutcome = []store.Outcome{store.Complete, store.Retry, store.Kill, store.Release, store.Expire}

// insist is a worker that takes jobs, and says how they ended when it is told to, whatever has become of its lease.
func (p *player) insist(ctx context.Context, told <-chan struct{}) error {
	if _, err := p.store.Partitions()[0].Register(ctx, "stubborn", stormPool, stubbornJobs, stubbornLease); err != nil {
		return err
	}
	var held []store.Lease
	for len(held) < stubbornJobs {
		leases, err := p.store.Partitions()[0].Read(ctx, "stubborn", stormPool.ID(), stubbornJobs, 50*time.Millisecond, false)
		if err != nil {
			return err
		}
		held = append(held, leases...)
	}
	p.book.note("held", len(held))
	select {
	case <-told:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := p.store.Partitions()[0].Heartbeat(ctx, "stubborn", stubbornLease, "")
	p.book.note("beat", errors.Is(err, admission.ErrLeaseLost))
	for i, l := range held {
		f := endAs(l, everyOutcome[i%len(everyOutcome)])
		f.Reason = "stubborn"
		ends, _, err := p.store.Partitions()[0].Finish(ctx, stormPool.ID(), "stubborn", []store.Finish{f})
		if err != nil {
			return err
		}
		p.book.note("end", f.Outcome, ends[0])
	}
	p.book.note("over")
	<-ctx.Done()
	return nil
}

// TestAWorkerThatWokeTooLateIsNotBelieved asserts L5: a process that is stopped for longer than its lease and woken
// again can end, retry, return or extend nothing, neither of jobs that another worker has completed meanwhile nor of
// those that it still runs; and that other run counts, once.
func TestAWorkerThatWokeTooLateIsNotBelieved(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	c, d := newCast(t, server), newDeskAt(t, server, "hg")
	jobs := make([]store.Candidate, stubbornJobs)
	for n := range jobs {
		j := admission.NewJob("acme", "mail", "work", nil)
		j.ID = string(rune('a' + n))
		jobs[n] = candidate(j)
	}
	d.admit(0, jobs...)
	stubborn := c.enter(stubbornRole, 0)
	c.await(stubborn, "held", time.Minute)
	c.signal(stubborn, syscall.SIGSTOP)
	for d.census().Ready > 0 {
		d.pause(d.promote())
	}
	d.register("other", stubbornJobs, time.Hour)
	var held []store.Lease
	for len(held) < stubbornJobs {
		d.pause(d.promote())
		held = append(held, d.read("other", stubbornJobs)...)
	}
	d.finish(held[:stubbornJobs/2], complete)
	c.signal(stubborn, syscall.SIGCONT)
	_, err := stubborn.input.Write([]byte{'\n'})
	c.check(err)
	c.await(stubborn, "over", time.Minute)
	answers := 0
	c.read(stubbornRole, func(_ int, words []string) {
		if words[0] == "beat" && words[1] != "true" || words[0] == "end" && words[2] != string(store.EndedLost) {
			t.Errorf("law L5: a worker that lost its lease was answered %q", words)
		}
		answers += len(words) - 1
	})
	if want := 1 + 1 + 2*stubbornJobs; answers != want {
		t.Errorf("it gave %d words of account, want %d", answers, want)
	}
	if census := d.census(); census.Left["completed"] != stubbornJobs/2 || census.Ready != stubbornJobs/2 {
		t.Errorf("law L5: after it woke up: %+v", census)
	}
	ends := d.finish(held[stubbornJobs/2:], complete)
	if slices.ContainsFunc(ends, func(e store.Ended) bool { return e != store.EndedDone }) {
		t.Errorf("law L5: the worker that held the jobs was answered %v", ends)
	}
	if census := d.census(); census.Left["completed"] != stubbornJobs || census.Live != 0 {
		t.Errorf("law L5: in the end: %+v", census)
	}
	c.leave(stubborn)
}

// await waits until a word stands in the book of a role.
func (c *cast) await(a *actor, word string, patience time.Duration) {
	c.Helper()
	for deadline := time.Now().Add(patience); ; c.pause(10 * time.Millisecond) {
		found := false
		c.check(readBook(c.book(a.role, a.number), func(words []string) { found = found || words[0] == word }))
		if found {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("%s never says %s", a.role, word)
		}
	}
}
