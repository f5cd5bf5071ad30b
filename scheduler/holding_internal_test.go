package scheduler

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestAHolderCountsItsLeaseFromTheCall: Redis may have counted from then, however late the answer comes.
func TestAHolderCountsItsLeaseFromTheCall(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	st, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(st, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Promote(t.Context()); err != nil { // The script is loaded then.
		t.Fatal(err)
	}
	var reached time.Duration
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !c.IsScript() {
			return redistest.Action{}
		}
		reached = time.Since(s.born)
		return redistest.Action{Late: 200 * time.Millisecond}
	})
	if err := s.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Decide(nil)
	if over := time.Duration(s.holding.Load()) - s.config.TimerLease - reached; over > 0 {
		t.Errorf("it counts its lease from %s after Redis had the call", over)
	}
}
