package limiter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/store"
)

// holderOf is a client of a semaphore that goes by the rules of Permits, in a time that the test says.
type holderOf struct {
	token   string
	permits int
	queue   bool
	// Where it stands in line, by number, -1 for somewhere, when it was heard last, and whether someone behind it was served.
	place int
	asked time.Duration
	owed  bool
	// heard is before the call that last had an answer, while it holds, next when it acts again, done when its work is.
	holds       bool
	heard, next time.Duration
	done        time.Duration
	stopped     time.Duration // until when it is stopped, or dead for good
	dead        bool
}

const (
	ruleLease   = 30 * time.Second
	ruleClients = 64
)

// TestNeverMoreThanTheLimitWork: 64 clients, which die, are stopped beyond their lease, lose answers and give up, while the clock of the store
// steps by hours, once in two thirds of a lease, and the limit is changed. Those who hold permits as far as they know never hold more
// than the largest limit of late, who came first is served first, and what the dead held is back a second after their lease at the latest.
func TestNeverMoreThanTheLimitWork(t *testing.T) {
	t.Parallel()
	grants, owed, lost := 0, 0, 0
	for range 10 { // They are all in memory, and what is asked for below is rare.
		rapid.Check(t, func(rt *rapid.T) {
			r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)) //nolint:gosec // a test's own
			run := newRule(t, rt, r)
			for range 400 {
				run.step()
			}
			run.drain()
			grants, owed, lost = grants+run.grants, owed+run.owed, lost+run.lost
		})
	}
	if grants < 1000 || owed < 100 || lost < 10 {
		t.Errorf("%d were granted permits, %d heard of theirs after one behind them, %d lost theirs", grants, owed, lost)
	}
}

type rule struct {
	rt      *rapid.T
	t       *testing.T
	r       *rand.Rand
	part    *memory.Partition
	real    time.Duration // since the beginning
	offset  time.Duration // of the store's clock
	stepped time.Duration
	max     int
	limit   int // the most that may be held: the limit that the store was told, and above it what was held when it was lowered
	clients []*holderOf
	places  int
	tokens  int
	grants  int
	owed    int
	lost    int
}

func newRule(t *testing.T, rt *rapid.T, r *rand.Rand) *rule {
	t.Helper()
	run := &rule{rt: rt, t: t, r: r, max: 1 + r.IntN(6), stepped: -time.Hour}
	run.limit = run.max
	run.part = memory.New(memory.Config{Now: func() time.Time { return time.Unix(1_800_000_000, 0).Add(run.real + run.offset) }})
	for range ruleClients {
		run.clients = append(run.clients, &holderOf{next: time.Duration(r.IntN(20_000)) * time.Millisecond})
	}
	return run
}

func (run *rule) step() {
	run.real += time.Duration(1+run.r.IntN(300)) * time.Millisecond
	if run.r.IntN(60) == 0 && run.real-run.stepped > ruleLease*2/3 {
		run.stepped = run.real
		run.offset += time.Duration(run.r.IntN(7200)-3600) * time.Second
	}
	if run.r.IntN(100) == 0 {
		run.max = 1 + run.r.IntN(6)
		run.limit = max(run.max, run.limit)
	}
	for _, c := range run.clients {
		if !c.dead && run.real >= c.stopped && run.real >= c.next {
			run.act(c)
		}
	}
	if held := run.held(); held > run.limit {
		run.rt.Fatalf("at %s %d permits are held, at most %d may be", run.real, held, run.limit)
	}
	if state, err := run.part.Semaphore(run.t.Context(), "s"); err != nil || state.Held > run.limit {
		run.rt.Fatalf("the store has %+v, at most %d may be held (%v)", state, run.limit, err)
	} else { // Above a lowered limit nobody is let in, from the first call on that tells the store of it.
		run.limit = max(run.max, state.Max, state.Held)
	}
}

// held counts the permits of those who may work: they were not told to stop, and are neither dead nor stopped.
func (run *rule) held() (n int) {
	for _, c := range run.clients {
		if c.holds && !c.dead && run.real >= c.stopped && run.real < c.heard+ruleLease*2/3 {
			n += c.permits
		}
	}
	return n
}

func (run *rule) act(c *holderOf) {
	switch {
	case c.holds && run.real >= c.heard+ruleLease*2/3:
		run.lost++
		run.end(c)
	case c.holds && run.real >= c.done:
		err := run.part.Release(run.t.Context(), "s", c.token)
		if err != nil {
			run.rt.Fatalf("release of what is held: %v", err)
		}
		run.end(c)
	case c.holds:
		run.extend(c)
	default:
		run.ask(c)
	}
	switch run.r.IntN(60) {
	case 0:
		c.dead = true
	case 1:
		c.stopped = run.real + time.Duration(run.r.IntN(60_000))*time.Millisecond
	}
}

func (run *rule) end(c *holderOf) {
	*c = holderOf{next: run.real + time.Duration(run.r.IntN(5_000))*time.Millisecond}
}

func (run *rule) extend(c *holderOf) {
	if run.r.IntN(8) > 0 { // else the call is lost
		if _, err := run.part.Extend(run.t.Context(), "s", c.token, ruleLease); err != nil {
			run.rt.Fatalf("%s may not extend what it holds, heard %s ago: %v", c.token, run.real-c.heard, err)
		}
		c.heard = run.real
	}
	c.next = min(run.real+ruleLease/3, c.heard+ruleLease*2/3, max(c.done, run.real+time.Millisecond))
}

func (run *rule) ask(c *holderOf) {
	if c.token == "" {
		run.tokens++
		c.token, c.permits, c.queue = fmt.Sprint("t", run.tokens), 1+run.r.IntN(3), run.r.IntN(5) > 0
		c.permits = min(c.permits, run.max)
	}
	kept := c.place > 0 && run.real-c.asked < store.SemaphorePatience && run.stepped <= c.asked // A step counts for up to five seconds.
	if c.place > 0 && run.r.IntN(200) == 0 {                                                    // It gives up.
		if err := run.part.Release(run.t.Context(), "s", c.token); err != nil && kept {
			run.rt.Fatalf("a place in line given up: %v", err)
		}
		run.end(c)
		return
	}
	p, err := run.part.Acquire(run.t.Context(), store.Acquire{Name: "s", Token: c.token, Permits: c.permits, Max: run.max, Lease: ruleLease, Queue: c.queue})
	if err != nil {
		run.rt.Fatalf("acquire: %v", err)
	}
	switch {
	case p.Granted() && run.r.IntN(20) == 0: // The answer is lost, and it asks again.
		c.asked, c.next = run.real, run.real+10*time.Millisecond
	case p.Granted():
		run.granted(c)
	case p.Answer == store.SemaphoreWaiting:
		if kept && c.owed {
			run.rt.Fatalf("%s waits, and one behind it was served", c.token)
		}
		switch {
		case c.place == 0:
			run.places++
			c.place = run.places
		case !kept: // Where it stands now is not known.
			c.place, c.owed = -1, false
		}
		c.asked, c.next = run.real, run.real+min(10*time.Millisecond*time.Duration(1+p.Ahead), 250*time.Millisecond)
	default:
		run.end(c)
	}
}

func (run *rule) granted(c *holderOf) {
	run.grants++
	for _, other := range run.clients {
		if c.place > 0 && other.place > 0 && other.place < c.place && !other.holds {
			other.owed = true
			run.owed++
		}
	}
	c.holds, c.place, c.owed, c.heard = true, 0, false, run.real
	c.done = run.real + time.Duration(run.r.IntN(25_000))*time.Millisecond
	c.next = min(run.real+ruleLease/3, c.done)
}

// drain lets all die, and sees that one who comes then, and waits, has the whole of it a second after the last lease ends.
func (run *rule) drain() {
	for _, c := range run.clients {
		c.dead = true
	}
	ask := store.Acquire{Name: "s", Token: "last", Permits: run.max, Max: run.max, Lease: ruleLease, Queue: true}
	for end := run.real + ruleLease + time.Second; ; run.real += 250 * time.Millisecond {
		p, err := run.part.Acquire(run.t.Context(), ask)
		if err != nil {
			run.rt.Fatal(err)
		}
		if p.Granted() {
			break
		}
		if run.real > end {
			run.rt.Fatalf("a second after the last lease %d are held: %+v", p.Held, p)
		}
	}
	if err := errors.Join(run.part.Release(run.t.Context(), "s", "last")); err != nil {
		run.rt.Fatal(err)
	}
}
