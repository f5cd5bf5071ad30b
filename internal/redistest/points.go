package redistest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// EveryPoint runs a test for each command of what is named so, from the first to the one that a run ends without, so many at a time. It is part of
// running until all have ended, of which at least so many have to have been killed.
func EveryPoint(t *testing.T, running *sync.WaitGroup, atATime int, name string, cut Cut, least int64, run func(t *testing.T, k int) (killed, over bool)) {
	t.Helper()
	var next, killed atomic.Int64
	var over atomic.Bool
	var each sync.WaitGroup
	for range atATime {
		each.Go(func() {
			for !over.Load() {
				k := next.Add(1)
				t.Run(fmt.Sprintf("%s, command %d, cut %d", name, k, cut), func(t *testing.T) {
					dead, last := run(t, int(k))
					if dead {
						killed.Add(1)
					}
					if last {
						over.Store(true)
					}
				})
			}
		})
	}
	running.Go(func() {
		each.Wait()
		t.Logf("%s killed at %d points, cut %d", name, killed.Load(), cut)
		if killed.Load() < least {
			t.Errorf("%s: %d points, there should be %d at least: the run does less than it should", name, killed.Load(), least)
		}
	})
}
