package limiter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestALimiterIsClosedByManyWhileManyAsk: with contexts that have ended too, and where its store was closed before. Who asks is
// answered, or told that it is closed; and what was admitted and what is left is no more than a burst.
func TestALimiterIsClosedByManyWhileManyAsk(t *testing.T) {
	t.Parallel()
	const burst, piece = 1_000_000, 1000
	for name, storeFirst := range map[string]bool{"its store is open": false, "its store is closed first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, prefix := redistest.Shared(t), redistest.Prefix(t)
			s, err := redisstore.Connect(t.Context(), server.URL(), redisstore.Config{Prefix: prefix})
			check(t, err)
			t.Cleanup(func() { _ = s.Close() })
			own := limited(none, admission.Limit{Tokens: 10_000, Per: 24 * time.Hour, Burst: burst})
			l := start(t, s, Config{Policy: own, Outage: OutageClosed, Timeout: time.Second, Minutes: true})
			var admitted atomic.Int64
			begun := make(chan struct{})
			begin := sync.OnceFunc(func() { close(begun) })
			var running sync.WaitGroup
			for range 8 {
				running.Go(func() {
					for {
						v, err := l.Check(t.Context(), Request{Tenant: "acme"})
						if errors.Is(err, ErrClosed) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						if v.Admitted {
							admitted.Add(1)
						}
						begin()
					}
				})
			}
			if storeFirst {
				check(t, s.Close())
			}
			<-begun
			for i := range 6 {
				running.Go(func() {
					ctx, end := context.WithCancel(t.Context())
					defer end()
					if i%2 == 0 {
						end()
					}
					_ = l.Close(ctx)
				})
			}
			running.Wait()
			err = l.Close(t.Context())
			if storeFirst {
				return // Nobody hears of what it gives back.
			}
			check(t, err)
			again, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: prefix})
			check(t, err)
			fresh := start(t, again, Config{Policy: own, Exact: true, Outage: OutageClosed})
			left := int64(0)
			for {
				v, err := fresh.Check(t.Context(), Request{Tenant: "acme", Cost: piece})
				check(t, err)
				if !v.Admitted {
					break
				}
				left += piece
			}
			check(t, fresh.Close(t.Context()))
			if admitted.Load()+left > burst {
				t.Errorf("%d were admitted and %d are left of %d", admitted.Load(), left, burst)
			}
		})
	}
}
