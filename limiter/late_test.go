package limiter

import (
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// waiting returns how many tickets wait for a pilot.
func (l *line) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.waiting)
}

// TestACheckTimesOutBeforeItsWayIsKnown: a pilot finds the way of a check whose caller knew none, while the caller gives up. The
// test is the pilot, so nothing but the line orders the two, and the race detector tells whether one writes what the other reads.
func TestACheckTimesOutBeforeItsWayIsKnown(t *testing.T) {
	t.Parallel()
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Outage: OutageOpen, Timeout: 100 * time.Millisecond})
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
		boarded = l.line.board() // none where a slow machine has let the caller go before
		l.board(inForce, boarded)
		asked.Wait()
	}
	if len(boarded) != 1 || boarded[0].boarded == nil || boarded[0].err != nil {
		t.Errorf("the pilot has %d tickets", len(boarded))
	}
}

// TestWhoWaitsGoesBeforeWhatIsFetched: a call takes those whose callers wait, and what is fetched where they leave room.
func TestWhoWaitsGoesBeforeWhatIsFetched(t *testing.T) {
	t.Parallel()
	l := line{places: 1}
	for i := range store.MaxBatchJobs + 1 {
		l.join(&ticket{})
		if i%2 == 0 {
			l.join(&ticket{cost: 1})
		}
	}
	waiting := func(tickets []*ticket) (n int) {
		for _, t := range tickets {
			n += int(t.cost)
		}
		return n
	}
	const checks = store.MaxBatchJobs/2 + 1
	if first := l.board(); waiting(first) != checks || len(first) != store.MaxBatchJobs {
		t.Errorf("of the first %d that go %d wait, want %d", len(first), waiting(first), checks)
	}
	if second := l.board(); waiting(second) != 0 || len(second) != checks+1 {
		t.Errorf("%d go then, %d of them wait; want %d that are fetched", len(second), waiting(second), checks+1)
	}
	if last := l.board(); len(last) != 0 {
		t.Errorf("%d go a second time", len(last))
	}
}
