package crash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	moverRole      = "mover"
	secondVariable = "HEADGATE_CRASH_SECOND"

	secondJobs    = 2
	secondSpilled = 6
	secondMoved   = 1000
	// secondPause is how long a mover of these tests waits where there is nothing to move.
	secondPause = 20 * time.Millisecond
)

// moveSpilled is a process that moves spilled jobs until ctx ends.
func (p *player) moveSpilled(ctx context.Context) error {
	mover := p.store.Partitions()[0].NewMover(strconv.Itoa(os.Getpid()))
	for ctx.Err() == nil {
		m, err := mover.Move(ctx)
		if err == nil && m.More {
			continue
		}
		if err := wait(ctx, secondPause); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// spillPair is a partition whose spilled jobs go to a second Redis, by a process that only moves them.
type spillPair struct {
	*desk
	cast   *cast
	there  *redis.Client
	second *redistest.Server
	mover  *actor
	// ran counts how often each job came to a worker.
	ran map[string]int
	// may says whether the worker may take more, after so many jobs; nil is always.
	may func(ran int) bool
	// singly is how many jobs are let in one by one, the next when the mover has no more to take away: a slow one has no fewer portions then.
	singly int
}

func newSpillPair(t *testing.T, first, second *redistest.Server) *spillPair {
	t.Helper()
	s := &spillPair{desk: newDesk(t, first), cast: newCast(t, first), there: second.Client(t), second: second, ran: map[string]int{}}
	s.cast.prefix = s.prefix
	s.cast.second = second.Addr()
	s.check(s.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Hour,
		Overflows: []store.TenantOverflow{{Tenant: "acme", Queue: "mail", Overflow: store.Overflow{
			Policy: store.Spillover, MaxJobs: secondJobs, MaxSpilled: secondSpilled, MaxMoved: secondMoved, LowWater: 50,
		}}},
	}))
	return s
}

// spillJob is the nth job; the payload of some stands under a key of its own.
func spillJob(n int) admission.Job {
	j := admission.NewJob("acme", "mail", "work", bytes.Repeat([]byte{byte(n)}, 50))
	if n%4 == 0 {
		j.Payload = bytes.Repeat([]byte{byte(n)}, store.LargePayload+n)
	}
	j.ID = strconv.Itoa(n)
	return j
}

// enter asks for jobs until each is in, however often that takes.
func (s *spillPair) enter(ctx context.Context, from, to int) error {
	for n := from; n < to; {
		verdicts, err := s.store.Partitions()[0].Admit(ctx, 1, []store.Candidate{candidate(spillJob(n))})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil || verdicts[0].Decision == admission.Refused:
			if err == nil && verdicts[0].Reason != admission.ReasonOverflow {
				return verdicts[0].Err()
			}
			if err := wait(ctx, secondPause); err != nil {
				return err
			}
		default:
			if n++; n < s.singly {
				if err := s.taken(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// taken waits until all bodies that are to go to the second Redis are there: half of what may be spilled stays in the first.
func (s *spillPair) taken(ctx context.Context) error {
	for {
		c, err := s.store.Census(ctx)
		if err == nil && c.Spilled-c.SpilledAway <= secondSpilled/2 {
			return nil
		}
		if err := wait(ctx, secondPause/4); err != nil {
			return err
		}
	}
}

// work runs what comes, whole or not at all, until so many jobs have ended. Redis may be away meanwhile.
func (s *spillPair) work(ctx context.Context, jobs int, slowly time.Duration) error {
	part := s.store.Partitions()[0]
	for ctx.Err() == nil {
		c, err := s.store.Counters(ctx)
		if err == nil && c.Left["completed"]+c.Left["record_gone"]+c.Died["record_gone"] >= int64(jobs) {
			return nil
		}
		if s.may != nil && !s.may(len(s.ran)) {
			if err := wait(ctx, secondPause); err != nil {
				return err
			}
			continue
		}
		_, _ = part.Promote(ctx, "desk", 20*time.Millisecond)
		leases, err := part.Read(ctx, "w", s.pool.ID(), 4, -1, true)
		if fresh, err := part.Read(ctx, "w", s.pool.ID(), 4, -1, false); err == nil {
			leases = append(leases, fresh...)
		}
		for _, l := range leases {
			var n int
			_, _ = fmt.Sscan(l.Job.ID, &n)
			if l.Err != nil || !bytes.Equal(l.Job.Payload, spillJob(n).Payload) {
				return fmt.Errorf("job %s comes with %d bytes of its payload: %w", l.Job.ID, len(l.Job.Payload), errors.Join(l.Err, errBroken))
			}
			s.ran[l.Job.ID]++
			_, _, _ = part.Finish(ctx, s.pool.ID(), "w", []store.Finish{complete(l)}) // In doubt it is among what this worker holds, or has ended.
		}
		if len(leases) == 0 || err != nil || slowly > 0 {
			if err := wait(ctx, max(secondPause, slowly)); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

var errBroken = errors.New("it is not whole")

// settle waits until the second Redis has nothing that counts no more, and asserts what is in both.
func (s *spillPair) settle(jobs int, replace func()) {
	s.Helper()
	base := redisstore.Keys(s.store).Base()
	for deadline := time.Now().Add(time.Minute); ; s.pause(secondPause) {
		replace()
		held := s.there.HLen(s.Context(), base+"second:records").Val() + s.there.HLen(s.Context(), base+"second:payloads").Val()
		if held == 0 && s.client.SCard(s.Context(), base+"copies").Val() == 0 {
			break
		}
		if time.Now().After(deadline) {
			s.Fatalf("%d bodies stay in the second Redis", held)
		}
	}
	c := s.census()
	if c.Accepted != int64(jobs) || c.Left["completed"] != int64(jobs) || c.Live != 0 || c.SpilledAway != 0 || len(s.ran) != jobs {
		s.Errorf("law L4 over both: %d jobs, %d ran, Redis has %+v", jobs, len(s.ran), c)
	}
}

// TestAMoverKilledBetweenAnyTwoCommands asserts L4 over both Redises for a mover that is killed at each of its commands to either in turn,
// after Redis has carried it out and before the reply is there. Another takes over, and each job ends once, whole.
func TestAMoverKilledBetweenAnyTwoCommands(t *testing.T) {
	t.Parallel()
	const jobs, singly, least = 16, 11, 12 // Of 11, two can run, three stay, and each other has a claim and a put at least.
	first := redistest.Shared(t)
	second := redistest.Start(t, redistest.Options{})
	var running sync.WaitGroup
	for _, side := range []string{"first", "second"} {
		// A mover changes nothing but what is in Redis: killed before a command it leaves what it does after the one before, to whichever Redis.
		const cut = redistest.CutAfter
		redistest.EveryPoint(t, &running, pointsAtATime, side, cut, least, func(t *testing.T, k int) (killed, over bool) {
			t.Helper()
			s := newSpillPair(t, first, second)
			s.singly = singly
			killed = killMover(t, s, side, k, cut, jobs)
			return killed, !killed
		})
	}
	running.Wait()
}

// killMover lets jobs pass through both while the mover is killed at the kth of its commands to one of them that move anything, and says whether it was.
func killMover(t *testing.T, s *spillPair, side string, k int, cut redistest.Cut, jobs int) bool {
	t.Helper()
	proxies := map[string]*redistest.Proxy{"first": redistest.NewProxy(t, s.cast.server.Addr()), "second": redistest.NewProxy(t, s.second.Addr())}
	died := make(chan struct{}, 1)
	var mu sync.Mutex
	seen, killed := 0, false
	proxies[side].Decide(func(c redistest.Command) redistest.Action {
		if idle(c) {
			return redistest.Action{}
		}
		if seen++; seen != k {
			return redistest.Action{}
		}
		return redistest.Action{Cut: cut, OnCut: func() {
			mu.Lock()
			defer mu.Unlock()
			killed = true
			if err := s.mover.command.Process.Kill(); err != nil {
				t.Error(err)
			}
			died <- struct{}{}
		}}
	})
	s.cast.ways[moverRole], s.cast.second = proxies["first"].Addr(), proxies["second"].Addr()
	mu.Lock()
	s.mover = s.cast.enter(moverRole, 0)
	mu.Unlock()
	replace := func() {
		select {
		case <-died:
			mu.Lock()
			defer mu.Unlock()
			s.cast.kill(s.mover)
			s.cast.ways[moverRole], s.cast.second = s.cast.server.Addr(), s.second.Addr()
			s.cast.start(s.mover)
		default:
		}
	}
	s.pass(jobs, 0, replace)
	s.settle(jobs, replace)
	mu.Lock()
	defer mu.Unlock()
	return killed
}

// idle says of a command that a mover sends it whether there is something to move or not: it would have no end.
func idle(c redistest.Command) bool {
	switch c.Name {
	case "INFO", "PING", "COMMAND", "SCRIPT", "FUNCTION":
		return true
	}
	return false
}

// pass lets jobs in and runs them, side by side.
func (s *spillPair) pass(jobs int, slowly time.Duration, meanwhile func()) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	s.register("w", 4, time.Hour)
	ended := make(chan error, 2)
	go func() { ended <- s.enter(ctx, 0, jobs) }()
	go func() { ended <- s.workAfter(ctx, jobs, slowly) }()
	for left := 2; left > 0; {
		select {
		case err := <-ended:
			if left--; err != nil {
				c, _ := s.store.Census(s.Context())
				s.Fatalf("%v: %+v", err, c)
			}
		case <-time.After(secondPause):
			meanwhile()
		}
	}
}

// workAfter works once many jobs are in, so that most of them pass through the second Redis.
func (s *spillPair) workAfter(ctx context.Context, jobs int, slowly time.Duration) error {
	for ctx.Err() == nil {
		if c, err := s.store.Counters(ctx); err == nil && c.Accepted >= int64(jobs)*2/3 {
			return s.work(ctx, jobs, slowly)
		}
		if err := wait(ctx, secondPause); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// TestSpillStorm asserts the same while either Redis is killed with kill -9 and started again, both with appendfsync always, and the movers
// with it: what was let in ends once, whole, and nothing stays behind.
func TestSpillStorm(t *testing.T) {
	t.Parallel()
	const jobs, movers, strikes = 64, 2, 24
	first, second := redistest.Start(t, redistest.Options{AppendFsync: "always"}), redistest.Start(t, redistest.Options{AppendFsync: "always"})
	s := newSpillPair(t, first, second)
	dice := newDice(t)
	var actors []*actor
	for n := range movers {
		actors = append(actors, s.cast.enter(moverRole, n))
	}
	struck, most := map[string]int{}, int64(0)
	var blows atomic.Int64
	s.may = func(ran int) bool { return int64(ran)*strikes < (blows.Load()+1)*jobs }
	next := time.Now()
	s.pass(jobs, 20*time.Millisecond, func() {
		if state, err := s.store.Census(t.Context()); err == nil {
			most = max(most, state.SpilledAway)
		}
		if time.Now().Before(next) {
			return
		}
		next = time.Now().Add(time.Duration(50+dice.IntN(300)) * time.Millisecond)
		blows.Add(1)
		switch n := dice.IntN(4); {
		case n < 2:
			a := actors[dice.IntN(movers)]
			s.cast.kill(a)
			s.cast.start(a)
			struck["mover"]++
		case n == 2:
			first.Kill(t)
			first.Restart(t)
			struck["first"]++
		default:
			second.Kill(t)
			second.Restart(t)
			struck["second"]++
		}
	})
	s.settle(jobs, func() {})
	all := []string{}
	for what, n := range struck {
		all = append(all, fmt.Sprintf("%s %d times", what, n))
	}
	t.Logf("killed: %s; most bodies in the second Redis at a time %d", strings.Join(all, ", "), most)
	if blows.Load() < strikes-1 || most < jobs/4 {
		t.Errorf("too little happened")
	}
}
