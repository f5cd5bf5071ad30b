package tally

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestWhoHurriesWaitsForAllThatIsCounted: for the flush that is ordered, for one that has begun, and for none.
func TestWhoHurriesWaitsForAllThatIsCounted(t *testing.T) {
	t.Parallel()
	var all Tally
	all.Hurry() // Nothing was counted.
	var stored atomic.Int64
	note := func(flush func(bool) bool) {
		all.NoteAlone(func(add func(Path, Sum)) { add(Path{Tenant: "acme"}, Sum{Allowed: 1, Tokens: admission.Tokens(1)}) }, flush)
	}
	take := func(bool) (more bool) {
		for _, s := range all.take(false).paths {
			stored.Add(s.Allowed)
		}
		return false
	}
	note(take)
	note(take)
	all.Hurry()
	if n := stored.Load(); n != 2 {
		t.Errorf("%d of 2 are stored", n)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	note(func(all bool) bool {
		close(begun)
		<-goOn
		return take(all)
	})
	<-begun
	waited := make(chan int64)
	go func() {
		all.Hurry()
		waited <- stored.Load()
	}()
	select {
	case n := <-waited:
		t.Errorf("it has not waited: %d of 3 are stored", n)
	case <-time.After(20 * time.Millisecond):
		close(goOn)
		if n := <-waited; n != 3 {
			t.Errorf("%d of 3 are stored", n)
		}
	}
}

// lastCount is a store whose count waits for a while, of which it tells, and then says what it is told to.
type lastCount struct {
	store.Deployment

	begun  chan int64 // what was counted of everybody
	answer chan error
}

func (l *lastCount) Count(_ context.Context, counts []store.ScopeCount) (int, error) {
	for _, c := range counts {
		if c.Scope == admission.Global {
			l.begun <- c.Allowed
		}
	}
	if err := <-l.answer; err != nil {
		return 0, err
	}
	return len(counts), nil
}

// TestWhatIsNotedDuringTheLastFlushIsStored: by a flush that the end of Run orders, with what the last one has failed to store; where nobody flushes but Run
// nothing is kept.
func TestWhatIsNotedDuringTheLastFlushIsStored(t *testing.T) {
	t.Parallel()
	p := policy.Unlimited()
	inForce, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func() *policy.Compiled { return inForce }
	note := func(add func(Path, Sum)) { add(Path{Tenant: "acme"}, Sum{Allowed: 1, Tokens: 1}) }
	for name, last := range map[string]error{"it is stored": nil, "it fails": errors.New("no")} {
		for how, want := range map[string]int64{"alone": 3, "with Run": 0} {
			var all Tally
			s, stored := &lastCount{begun: make(chan int64), answer: make(chan error)}, int64(0)
			one := func() { all.Note(note) }
			if how == "alone" {
				one = func() {
					all.NoteAlone(note, func(bool) bool {
						for _, sum := range all.take(false).paths {
							stored += sum.Allowed
						}
						return false
					})
				}
			}
			all.begin() // As Run does, which is not to flush before it is told to end.
			one()
			one()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			var running sync.WaitGroup
			running.Go(func() { all.Run(ended, s, snapshot, func(error) {}) })
			if n := <-s.begun; n != 2 {
				t.Errorf("%s, %s: the last flush has %d", name, how, n)
			}
			all.end()
			one()
			s.answer <- last
			running.Wait()
			if last == nil && want > 0 {
				stored += 2
			}
			if all.Hurry(); stored != want || len(all.mu.paths) != 0 {
				t.Errorf("%s, %s: %d are stored, want %d, and of %d ways something is left", name, how, stored, want, len(all.mu.paths))
			}
		}
	}
}

// panickingCount is a store whose client has a hook that panics behind the call.
type panickingCount struct{ store.Deployment }

func (panickingCount) Count(context.Context, []store.ScopeCount) (int, error) { panic("too much") }

// TestACountThatPanickedIsAnErrorAndLost: it may have been stored, and a count too few is better than one too many.
func TestACountThatPanickedIsAnErrorAndLost(t *testing.T) {
	t.Parallel()
	p := policy.Unlimited()
	inForce, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	var all Tally
	all.Keep(func(add func(Path, Sum)) { add(Path{Tenant: "acme"}, Sum{Allowed: 1, Tokens: 1}) })
	if _, err := all.Flush(t.Context(), panickingCount{}, inForce, true); err == nil || !strings.Contains(err.Error(), "too much") {
		t.Errorf("got %v", err)
	}
	if left := all.take(false); len(left.paths) != 0 {
		t.Errorf("%+v is counted again", left.paths)
	}
}
