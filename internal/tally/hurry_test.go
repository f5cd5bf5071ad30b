package tally

import (
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/admission"
)

// TestWhoHurriesWaitsForAllThatIsCounted: for the flush that is ordered, for one that has begun, and for none.
func TestWhoHurriesWaitsForAllThatIsCounted(t *testing.T) {
	t.Parallel()
	var all Tally
	all.Hurry() // Nothing was counted.
	var stored atomic.Int64
	note := func(flush func()) {
		all.NoteAlone(func(add func(Path, Sum)) { add(Path{Tenant: "acme"}, Sum{Allowed: 1, Tokens: admission.Tokens(1)}) }, flush)
	}
	take := func() {
		for _, s := range all.take(false).paths {
			stored.Add(s.Allowed)
		}
	}
	note(take)
	note(take)
	all.Hurry()
	if n := stored.Load(); n != 2 {
		t.Errorf("%d of 2 are stored", n)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	note(func() {
		close(begun)
		<-goOn
		take()
	})
	<-begun
	waited := make(chan int64)
	go func() {
		all.Hurry()
		waited <- stored.Load()
	}()
	close(goOn)
	if n := <-waited; n != 3 {
		t.Errorf("%d of 3 are stored", n)
	}
}
