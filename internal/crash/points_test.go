package crash_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/producer"
)

// TestEveryPoint asserts L3 and L4 for a process that dies at any of its commands: before Redis has it, and after Redis
// has carried it out and before the reply is there. Nothing of that process is heard again; others finish its work.
func TestEveryPoint(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	whole := newPoint(t, server, 0, redistest.CutNone)
	whole.run()
	commands := whole.proxy.Commands()
	whole.rescue()
	var running sync.WaitGroup
	turns := make(chan struct{}, 24)
	var missed struct {
		sync.Mutex
		n int
	}
	for k := 1; k <= commands; k++ {
		for _, cut := range []redistest.Cut{redistest.CutBefore, redistest.CutAfter} {
			p := newPoint(t, server, k, cut)
			turns <- struct{}{}
			running.Go(func() {
				defer func() { <-turns }()
				p.run()
				if p.proxy.Cuts() == 0 {
					missed.Lock()
					missed.n++
					missed.Unlock()
				}
				p.rescue()
			})
		}
	}
	running.Wait()
	t.Logf("%d commands, %d points", commands, 2*commands)
	if commands < 30 || missed.n > 0 {
		t.Errorf("%d commands and %d points that were not reached: the run does less than it should", commands, missed.n)
	}
}

// point is a partition, and a process that dies at its kth command.
type point struct {
	*desk
	proxy *redistest.Proxy
	name  string
	// dying says that there is a last command.
	dying bool
	// dies ends the process's ctx once it tries to go on.
	ctx  context.Context //nolint:containedctx // It is the life of the process under test.
	dies context.CancelFunc
}

const (
	pointLease = 300 * time.Millisecond
	pointJobs  = 12
)

func newPoint(t *testing.T, server *redistest.Server, k int, cut redistest.Cut) *point {
	t.Helper()
	p := &point{desk: newDesk(t, server), proxy: redistest.NewProxy(t, server.Addr())}
	p.dying = k > 0
	p.name = fmt.Sprintf("command %d, cut %d", k, cut)
	p.ctx, p.dies = context.WithCancel(t.Context())
	t.Cleanup(p.dies)
	putPolicy(t, p.store, stormPolicy(), lua.QueueSettings{
		Queue: "hook", Classes: headgate.DefaultClasses(), Horizon: time.Hour,
		Overflow: lua.Overflow{Policy: lua.Spillover, MaxJobs: 2, MaxSpilled: 10, LowWater: 50},
	})
	p.proxy.Decide(func(c redistest.Command) redistest.Action {
		switch {
		case k == 0 || c.Index < k:
			return redistest.Action{}
		case c.Index == k:
			return redistest.Action{Cut: cut}
		}
		p.dies()
		return redistest.Action{Cut: redistest.CutBefore}
	})
	return p
}

// job returns one of the jobs of the run: some later, unique, large, or bound to die.
func (p *point) job(n int) headgate.Job {
	j := headgate.NewJob("acme", []string{"mail", "hook"}[n%2], "work", fmt.Appendf(nil, "%d", n))
	j.ID, j.Cost = fmt.Sprintf("j%d", n), headgate.Tokens(1+n%3)
	switch n {
	case 0:
		j.Payload = make([]byte, 5000)
	case 2:
		j.Unique.Key = "only"
	case 4:
		j.Delay = 30 * time.Millisecond
	case 6:
		j.MaxAttempts = 1
	case 8:
		j.Delay = time.Hour
	}
	return j
}

func (p *point) jobs() (all []headgate.Job) {
	for n := range pointJobs {
		all = append(all, p.job(n))
	}
	return all
}

// end is how a job ends on its first run by the process under test, and on any other.
func end(l lua.Lease, first bool) lua.Finish {
	f := endAs(l, lua.Complete)
	switch {
	case l.Job.ID == "j10":
		f.Outcome, f.Reason, f.Text = lua.Kill, "discarded", "as planned"
	case l.Job.ID == "j6" || l.Job.ID == "j1" && first:
		f.Outcome, f.Text, f.Delay = lua.Retry, "as planned", 10*time.Millisecond
	case l.Job.ID == "j3" && first:
		f.Outcome = lua.Release
	}
	return f
}

// run is the process under test. It enqueues, works and schedules, and ends with the first thing that goes wrong, as far
// as it is heard.
func (p *point) run() {
	client := p.proxy.Client(p.T)
	store, err := lua.Open(p.ctx, client, lua.Config{Prefix: p.prefix})
	if err != nil {
		return
	}
	sdk, err := producer.New(store, producer.Config{})
	if err != nil {
		p.Error(err)
		return
	}
	if _, err = sdk.EnqueueBatch(p.ctx, p.jobs()[:7]); err != nil {
		return
	}
	if _, err = store.Register(p.ctx, "first", stormPool, 4, pointLease); err != nil {
		return
	}
	for n := 7; n < pointJobs && err == nil; n++ {
		_, err = sdk.Enqueue(p.ctx, p.job(n))
	}
	if err == nil {
		_, _, err = store.Cancel(p.ctx, headgate.Key{Tenant: "acme", ID: "j8"}, "as planned")
	}
	if err == nil {
		_, _, err = store.SetGate(p.ctx, lua.Gate{
			Name: lua.QueueGate("mail"), Limit: 0, For: 20 * time.Millisecond, Then: lua.Unlimited, Reason: "as planned",
		})
	}
	for round := 0; round < 5 && err == nil; round++ {
		err = p.round(store)
	}
	for more := true; more && err == nil; {
		more, err = store.Reclaim(p.ctx, "first")
	}
	for ; err == nil && p.dying; _, err = store.Promote(p.ctx, "first", 20*time.Millisecond) {
	} // Time has run otherwise than in the run that counted: it dies as a scheduler.
}

// round is what a worker that runs a scheduler does again and again.
func (p *point) round(store *lua.Store) error {
	if _, err := store.Heartbeat(p.ctx, "first", pointLease); err != nil {
		return err
	}
	if _, err := store.Promote(p.ctx, "first", 20*time.Millisecond); err != nil {
		return err
	}
	leases, err := store.Read(p.ctx, "first", stormPool.ID(), 4, 15*time.Millisecond, false)
	if err != nil || len(leases) == 0 {
		return err
	}
	ends := make([]lua.Finish, len(leases))
	for i, l := range leases {
		ends[i] = end(l, l.Attempts == 0)
	}
	if err := store.Started(p.ctx, stormPool.ID(), "first", ends[0].Token, ends[0].Key); err != nil {
		return err
	}
	_, _, err = store.Finish(p.ctx, stormPool.ID(), "first", ends)
	return err
}

// rescue is a fresh producer, worker and scheduler, and what must be true when they are done.
func (p *point) rescue() {
	sdk, err := producer.New(p.store, producer.Config{Timeout: 20 * time.Second})
	if err != nil {
		p.Error(err)
		return
	}
	cost := int64(0)
	for _, j := range p.jobs() {
		cost += int64(j.Cost)
		if _, err := sdk.Enqueue(p.Context(), j); err != nil {
			p.Errorf("%s: enqueue %s again: %v", p.name, j.ID, err)
		}
	}
	key := headgate.Key{Tenant: "acme", ID: "j8"}
	if _, _, err := p.store.Cancel(p.Context(), key, "as planned"); err != nil && !errors.Is(err, headgate.ErrEnded) {
		p.Errorf("%s: %v", p.name, err)
	}
	p.register("fresh", 8, time.Minute)
	p.drain("fresh", func(l lua.Lease) lua.Finish { return end(l, false) })
	c := p.census()
	if c.Accepted != pointJobs || c.Left["cancelled"] != 1 || c.Dead != 2 || c.Left["completed"] != pointJobs-3 {
		p.Errorf("%s: law L4: %+v", p.name, c)
	}
	level, err := p.level("acme", "")
	if left := (tenantBurst - cost) * 1_000_000; err != nil || level < left || level >= left+1_000_000/86_400*60 {
		p.Errorf("%s: law L3: %d tokens admitted of %d, %d micro-tokens left, %v", p.name, cost, tenantBurst, level, err)
	}
}
