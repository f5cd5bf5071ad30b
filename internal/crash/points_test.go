package crash_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	// pointLease is what a worker that a busy machine keeps waiting outlasts: each lease it loses has its jobs wait twice as long, up to half a minute.
	pointLease = 1200 * time.Millisecond
	// pointJobs is what the producer asks for, pointSuspects what was in the hands of a lost worker before.
	pointJobs     = 12
	pointSuspects = 2
	// pointsAtATime are tried of each role, before and after. They wait more than they work.
	pointsAtATime = 4
	pointPatience = 60 * time.Second
)

// TestEveryPoint asserts L3 and L4 for processes that are killed at each of their commands in turn: before Redis has it,
// and after Redis has carried it out and before the reply is there. A fresh process then takes the role over. It goes on to
// the first command that a run ends without.
func TestEveryPoint(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var running sync.WaitGroup
	for role, least := range map[string]int64{scriptRole: 10, schedulerRole: 8, workingRole: 25} {
		for _, cut := range []redistest.Cut{redistest.CutBefore, redistest.CutAfter} {
			redistest.EveryPoint(t, &running, pointsAtATime, role, cut, least, func(t *testing.T, k int) (killed, over bool) {
				t.Helper()
				p := newPoint(t, server, role, k, cut)
				killed = p.run()
				return killed, !p.reached.Load()
			})
		}
	}
	running.Wait()
}

// point is a run of three processes, one of which dies at its kth command.
type point struct {
	*desk
	cast *cast
	// mu is held while processes are started, so that a proxy finds whom it is to kill.
	mu     sync.Mutex
	actors map[string]*actor
	// reached says that the command was sent, killed that the process died by it: not if its connection ended first.
	reached atomic.Bool
	killed  bool
	// died gets the role that was killed.
	died chan string
	// over says that who takes over the worker's role has only to drain.
	over bool
}

// newPoint starts everything.
func newPoint(t *testing.T, server *redistest.Server, role string, k int, cut redistest.Cut) *point {
	t.Helper()
	p := &point{desk: newDesk(t, server), cast: newCast(t, server), actors: map[string]*actor{}, died: make(chan string, 1)}
	p.cast.prefix = p.prefix
	// A worker that a busy machine keeps from its heartbeats loses its lease too, however often.
	mail := store.QueueSettings{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, PoisonLimit: policy.MaxPoisonLimit}
	hook := mail
	hook.Queue, hook.Overflow = "hook", store.Overflow{Policy: store.Spillover, MaxJobs: 2, MaxSpilled: 10, LowWater: 50}
	putPolicy(t, p.store, stormPolicy(), mail, hook)
	p.loseSome()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range []string{schedulerRole, workingRole, scriptRole} {
		proxy := redistest.NewProxy(t, server.Addr())
		if of == role {
			proxy.Decide(p.killAt(role, k, cut))
		}
		p.cast.ways[of] = proxy.Addr()
		p.actors[of] = p.cast.enter(of, 0)
	}
	return p
}

// loseSome leaves suspects behind.
func (p *point) loseSome() {
	p.Helper()
	var jobs []store.Candidate
	for n := range pointSuspects {
		j := admission.NewJob("lost", "mail", "work", nil)
		j.ID = fmt.Sprintf("s%d", n)
		jobs = append(jobs, candidate(j))
	}
	p.register("lost", pointSuspects, 50*time.Millisecond)
	p.admit(1, jobs...)
	if held := p.read("lost", pointSuspects); len(held) != pointSuspects {
		p.Fatalf("took %d jobs", len(held))
	}
}

// killAt kills the role's process at its kth command, and lets all later ones pass.
func (p *point) killAt(role string, k int, cut redistest.Cut) func(redistest.Command) redistest.Action {
	kill := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.killed = true
		if err := p.actors[role].command.Process.Kill(); err != nil {
			p.Error(err)
		}
		p.died <- role
	}
	return func(c redistest.Command) redistest.Action {
		if c.Index != k {
			return redistest.Action{}
		}
		p.reached.Store(true)
		return redistest.Action{Cut: cut, OnCut: kill}
	}
}

// run lets the processes do their work, asserts what must be true in the end, and says whether one was killed.
func (p *point) run() bool {
	p.await("nothing is left to do", func() bool {
		if !p.said(scriptRole, "done") {
			return false
		}
		c, err := p.store.Census(p.Context())
		return err == nil && c.Live == c.Dead
	})
	p.over = true
	_ = p.actors[workingRole].input.Close() // It drains, and may be killed over that.
	p.await("no worker is left", func() bool {
		return p.client.HLen(p.Context(), redisstore.Keys(p.store).Workers()).Val() == 0
	})
	c := p.census()
	want := map[string]int64{"completed": pointJobs - 3 + pointSuspects, "cancelled": 1}
	for way, n := range want {
		if c.Left[way] != n {
			p.Errorf("law L4: %d jobs left as %s, want %d", c.Left[way], way, n)
		}
	}
	if c.Accepted != pointJobs+pointSuspects || c.Live != 2 || c.Dead != 2 || c.Died["max_attempts"] != 1 || c.Died["discarded"] != 1 {
		p.Errorf("law L4: %+v", c)
	}
	cost := int64(0)
	for n := range pointJobs {
		cost += int64(scriptJob(n).Cost)
	}
	level, err := p.level("acme", "")
	if left := (tenantBurst - cost) * 1_000_000; err != nil || level < left || level >= left+1_000_000/86_400*int64(pointPatience/time.Second) {
		p.Errorf("law L3: %d tokens admitted of %d, %d micro-tokens left, %v", cost, tenantBurst, level, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// await replaces who is killed until something is so.
func (p *point) await(what string, so func() bool) {
	p.Helper()
	for deadline := time.Now().Add(pointPatience); !so(); p.pause(50 * time.Millisecond) {
		select {
		case role := <-p.died:
			p.mu.Lock()
			p.cast.kill(p.actors[role])
			p.cast.start(p.actors[role])
			if p.over && role == workingRole {
				_ = p.actors[role].input.Close()
			}
			p.mu.Unlock()
		default:
		}
		if time.Now().After(deadline) {
			c, err := p.store.Census(p.Context())
			p.Fatalf("waited in vain until %s: %+v, %v", what, c, err)
		}
	}
}

// said reports whether a word stands in the book of a role.
func (p *point) said(role, word string) (found bool) {
	p.Helper()
	p.check(readBook(p.cast.book(role, 0), func(words []string) { found = found || strings.EqualFold(words[0], word) }))
	return found
}
