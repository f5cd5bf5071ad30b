package rls

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestDimensionsWithoutRedisGoByTheOutageMode, also before the policy was ever read: then nobody knows which dimensions there are.
func TestDimensionsWithoutRedisGoByTheOutageMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[limiter.Outage]uint64{limiter.OutageOpen: codeOK, limiter.OutageShare: codeOverLimit} {
		server := redistest.Start(t, redistest.Options{})
		s, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
		check(t, err)
		limits, err := limiter.New(s, limiter.Config{Outage: mode, Timeout: time.Second})
		check(t, err)
		server.Kill(t)
		e := envoyOf(t, limits)
		got := e.limit("edge", 3, asked(-1, "tenant", "acme", "user", "1"), asked(-1, "user", "2"))
		if got.overall != want || len(got.codes) != 2 {
			t.Errorf("%s: %+v", mode, got)
		}
		if stats := limits.Stats(); mode == limiter.OutageOpen && stats.BlindTokens != 6 {
			t.Errorf("%s: %d tokens", mode, stats.BlindTokens)
		}
	}
}
