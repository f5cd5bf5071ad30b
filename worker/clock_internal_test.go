package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker/internal/inhand"
)

// TestTheClockOfRedisIsEstimatedToHalfATrip, whichever half of it takes the time.
func TestTheClockOfRedisIsEstimatedToHalfATrip(t *testing.T) {
	t.Parallel()
	const slow = 100 * time.Millisecond
	for name, action := range map[string]redistest.Action{"there": {Delay: slow}, "back": {Late: slow}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			proxy := redistest.NewProxy(t, server.Addr())
			direct, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
			if err != nil {
				t.Fatal(err)
			}
			s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
			if err != nil {
				t.Fatal(err)
			}
			proxy.Decide(func(c redistest.Command) redistest.Action {
				if strings.EqualFold(c.Name, "TIME") {
					return action
				}
				return redistest.Action{}
			})
			var clock inhand.RedisClock
			began := time.Now()
			if err := clock.Read(t.Context(), s.Partitions()[0]); err != nil {
				t.Fatal(err)
			}
			half := time.Since(began) / inhand.FirstSamples / 2 // of no less than the shortest trip
			before, err := direct.Time(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			estimate := clock.Now()
			after, err := direct.Time(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ahead, behind := estimate.Sub(after), before.Sub(estimate); ahead > half || behind > half {
				t.Errorf("%s ahead, %s behind, half a trip is %s", ahead, behind, half)
			}
		})
	}
}
