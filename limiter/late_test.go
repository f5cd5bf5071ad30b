package limiter

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// waiting returns how many tickets wait for a pilot.
func (l *line) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.waiting.len()
}

// TestACheckTimesOutBeforeItsWayIsKnown: a pilot finds the way of a check whose caller knew none, while the caller gives up. The
// test is the pilot, so nothing but the line orders the two, and the race detector tells whether one writes what the other reads.
func TestACheckTimesOutBeforeItsWayIsKnown(t *testing.T) {
	t.Parallel()
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Outage: OutageOpen, Timeout: 100 * time.Millisecond, InFlight: 1})
	unlimited := policy.Unlimited()
	inForce, err := unlimited.Prepare()
	check(t, err)
	var boarded []*ticket
	for end := time.Now().Add(time.Minute); len(boarded) == 0 && time.Now().Before(end); {
		l.line.mu.pilots = l.line.places // so that nobody else flies
		l.line.flying.Add(1)
		var asked sync.WaitGroup
		asked.Go(func() {
			if v := ask(t, l, Request{Tenant: "acme"}); !v.Admitted || v.Source != Blind {
				t.Errorf("%+v", v)
			}
		})
		for l.line.waiting() == 0 {
			<-time.After(time.Microsecond)
		}
		boarded = l.line.board(l.pace(), nil) // none where a slow machine has let the caller go before
		l.board(new(flight), inForce, boarded)
		asked.Wait()
	}
	if len(boarded) != 1 || boarded[0].boarded == nil || boarded[0].err != nil {
		t.Errorf("the pilot has %d tickets", len(boarded))
	}
	for range 100 {
		if l.line.ticket(route{}, nil, 1) == boarded[0] {
			t.Fatal("a ticket that a pilot still has is used again")
		}
	}
}

// TestWhoWaitsGoesBeforeWhatIsFetched: a call takes those whose callers wait, and what is fetched where they leave room.
func TestWhoWaitsGoesBeforeWhatIsFetched(t *testing.T) {
	t.Parallel()
	l := line{places: 1}
	for i := range store.MaxBatchJobs + 1 {
		l.join(&ticket{}, pace{})
		if i%2 == 0 {
			l.join(&ticket{cost: 1}, pace{})
		}
	}
	waiting := func(tickets []*ticket) (n int) {
		for _, t := range tickets {
			n += int(t.cost)
		}
		return n
	}
	const checks = store.MaxBatchJobs/2 + 1
	if first := l.board(pace{}, nil); waiting(first) != checks || len(first) != store.MaxBatchJobs {
		t.Errorf("of the first %d that go %d wait, want %d", len(first), waiting(first), checks)
	}
	if second := l.board(pace{}, nil); waiting(second) != 0 || len(second) != checks+1 {
		t.Errorf("%d go then, %d of them wait; want %d that are fetched", len(second), waiting(second), checks+1)
	}
	if last := l.board(pace{}, nil); len(last) != 0 {
		t.Errorf("%d go a second time", len(last))
	}
}

// TestAQueueIsInOrder beside a list of those that wait, however they come and go, without those that have left; its room does not grow with how many
// have passed.
func TestAQueueIsInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var q queue
		var want []*ticket
		for range 200 {
			for range rapid.IntRange(0, 100).Draw(rt, "come") {
				one := &ticket{}
				q.push(one)
				want = append(want, one)
			}
			if len(want) > 0 && rapid.Bool().Draw(rt, "leaves") {
				i := rapid.IntRange(0, len(want)-1).Draw(rt, "who")
				want[i].left.Store(true)
				// It stands in the queue until its turn comes.
			}
			for _, got := range q.board(nil) {
				for want[0].left.Load() {
					want = want[1:]
				}
				if got != want[0] {
					rt.Fatal("another one boards")
				}
				want = want[1:]
			}
			if len(q.tickets) > 2*q.len()+1 {
				rt.Fatalf("room for %d, and %d wait", len(q.tickets), q.len())
			}
		}
	})
}

// TestAnotherCallTakesAsMany: a second call goes out at once beside one of a single check, a further one with as many as the last one carried and one for
// each that is under way; what is fetched counts.
func TestAnotherCallTakesAsMany(t *testing.T) {
	t.Parallel()
	l := line{places: 4}
	join := func(cost admission.Tokens) bool {
		pilot, ok := l.join(&ticket{cost: cost}, pace{})
		return pilot && ok
	}
	for call, joining := range [][]bool{{true}, {true}, {false, true}, {false, false, true}} {
		for i, want := range joining {
			if pilot := join(admission.Tokens(i % 2)); pilot != want {
				t.Fatalf("call %d: after %d more joined there is a pilot: %v", call, i+1, pilot)
			}
		}
		if took := len(l.board(pace{}, nil)); took != len(joining) {
			t.Fatalf("call %d takes %d, want %d", call, took, len(joining))
		}
	}
	for range store.MaxBatchJobs {
		if join(1) {
			t.Fatal("more calls than places")
		}
	}
	join(1)
	for i, want := range []int{store.MaxBatchJobs, 0, 0, 0, 1, 0} { // Beside others none flies for one, and the last takes it.
		if took := len(l.board(pace{}, nil)); took != want {
			t.Fatalf("after landing, call %d takes %d, want %d", i, took, want)
		}
	}
	if l.mu.pilots != 0 {
		t.Errorf("%d pilots are left", l.mu.pilots)
	}
	for name, at := range map[string]pace{"the last is late": {now: breaker.Instant(lateAfter) + 1}, "the breaker is open": {open: true}} {
		l := line{places: 4}
		for range 3 {
			l.join(&ticket{cost: 1}, pace{})
		}
		l.board(pace{}, nil)
		if pilot, _ := l.join(&ticket{cost: 1}, pace{}); pilot {
			t.Errorf("%s: a call of one beside one of three", name)
		}
		if pilot, _ := l.join(&ticket{cost: 1}, at); !pilot {
			t.Errorf("%s: and no other call", name)
		}
	}
}

// TestACallThatHangsHoldsUpNobodyElse: who waits behind it, while there are places, goes out with another call when it is late, though nobody else comes.
func TestACallThatHangsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	const hang = 3
	proxy, v := redistest.NewProxy(t, redistest.Shared(t).Addr()), newVirtual()
	config := Config{Policy: limited(admission.PerSecond(1e6), none), Timeout: patient, InFlight: hang + 1, Exact: true, Outage: OutageClosed}
	l := start(t, open(t, proxy.Client(t)), config)
	l.clock.set = &v.process // It stands still: no call is late.
	under, healed := make(chan struct{}, hang), make(chan struct{})
	proxy.Decide(func(redistest.Command) redistest.Action {
		if len(under) == hang {
			return redistest.Action{}
		}
		under <- struct{}{}
		return redistest.Action{Hold: healed}
	})
	var asked sync.WaitGroup
	one := func() { asked.Go(func() { ask(t, l, Request{}) }) }
	for n := range hang {
		for range max(1, n) { // As many as are under way, so that the next call goes out.
			one()
		}
		redistest.Await(t, "the next call", func() bool { return len(under) == n+1 })
	}
	one()
	redistest.Await(t, "somebody to wait", func() bool { return l.line.waiting() == 1 })
	v.process.Add(int64(lateAfter) + 1)
	redistest.Await(t, "an answer", func() bool { return l.Stats().Checks[0].N == 1 })
	close(healed)
	asked.Wait()
	if blind := l.Stats().Blind; len(blind) > 0 {
		t.Errorf("%+v", blind)
	}
}

// TestWhoIsLeftBehindIsWatched: a pilot that was to fly for somebody finds that no other call is due, as the breaker has closed meanwhile.
func TestWhoIsLeftBehindIsWatched(t *testing.T) {
	t.Parallel()
	l := line{places: 4, watch: time.AfterFunc(time.Hour, func() {}), every: time.Hour}
	defer l.watch.Stop()
	l.join(&ticket{cost: 1}, pace{})
	l.board(pace{}, nil)
	l.mu.carried = 3
	if pilot, _ := l.join(&ticket{cost: 1}, pace{open: true}); !pilot || l.mu.watched {
		t.Fatal("no pilot is to fly for who joins")
	}
	if boarded := l.board(pace{}, nil); len(boarded) != 0 || l.mu.pilots != 1 || !l.mu.watched {
		t.Errorf("%d board, %d pilots are left, and who waits is watched: %v", len(boarded), l.mu.pilots, l.mu.watched)
	}
	if l.due(pace{}) || !l.mu.watched {
		t.Error("another call of one beside one of three, or nobody looks again")
	}
	if !l.due(pace{now: breaker.Instant(lateAfter) + 1}) || l.mu.pilots != 2 {
		t.Error("no other call when the last one is late")
	}
}
