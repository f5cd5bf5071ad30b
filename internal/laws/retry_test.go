package laws_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestRetriesComeBackInHalfOfTheMoves asserts L12 when many jobs are due in the same moment: each call of promote brings 32 of them
// back, as counted from outside, makes 64 moves at most with those that workers get, and says that there is more.
func TestRetriesComeBackInHalfOfTheMoves(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	const retried = 3*maxMoves + 10
	s.register("w", mailPool, retried, longLease)
	s.scatter(retried)
	s.fillUp(retried)
	s.finish(mailPool, s.read("w", mailPool, retried), func(l store.Lease) store.Finish { return finishAs(l, store.Retry, time.Millisecond) })
	s.pause(10 * time.Millisecond)
	left := s.census().Later
	if left != retried {
		t.Fatalf("%d jobs wait for their retry, want %d", left, retried)
	}
	for call := 1; left > 0; call++ {
		next := s.promote()
		before := left
		left = s.census().Later
		if want := max(0, before-maxMoves/2); left != want || next.Moved > maxMoves {
			t.Fatalf("law L12: call %d of promote brought %d of %d jobs back by %d moves", call, before-left, before, next.Moved)
		}
		if left > 0 && !next.More {
			t.Errorf("call %d of promote leaves %d jobs and does not say so", call, left)
		}
	}
}
