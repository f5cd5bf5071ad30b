package tally

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
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
