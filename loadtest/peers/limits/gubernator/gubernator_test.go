package gubernator

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/gubernator-io/gubernator/v2"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/loadtest/peers/limits"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// BenchmarkLimits: gubernator's two algorithms. Its token bucket is full again as its time is over and gets nothing before, which is a fixed window that
// begins with the first call; its leaky bucket refuses, and holds as much as its limit.
func BenchmarkLimits(b *testing.B) {
	start := func(tb testing.TB) string { // Nobody asks it.
		tb.Helper()
		return redistest.Start(tb, redistest.Options{}).Addr()
	}
	limits.Run(b, start, []limits.Subject{
		{Name: "token-bucket/gubernator-leaky", Open: open(gubernator.Algorithm_LEAKY_BUCKET), Alone: true},
		{Name: "fixed-window/gubernator-token", Open: open(gubernator.Algorithm_TOKEN_BUCKET), Alone: true},
	})
}

func open(algorithm gubernator.Algorithm) func(testing.TB, string, limits.Limit) limits.Ask {
	return func(tb testing.TB, _ string, limit limits.Limit) limits.Ask {
		tb.Helper()
		log := logrus.New()
		log.SetOutput(io.Discard)
		const self = "127.0.0.1:1"
		g, err := gubernator.NewV1Instance(gubernator.Config{GRPCServers: []*grpc.Server{grpc.NewServer()}, Logger: log, AdvertiseAddr: self})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = g.Close() })
		g.SetPeers([]gubernator.PeerInfo{{GRPCAddress: self, IsOwner: true}})
		return func(ctx context.Context, tenant string) (bool, error) {
			answer, err := g.GetRateLimits(ctx, &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{{
				Name: "bench", UniqueKey: tenant, Hits: 1, Limit: int64(limit.Tokens), Duration: limit.Window.Milliseconds(), Algorithm: algorithm,
			}}})
			if err != nil {
				return false, err
			}
			one := answer.Responses[0]
			if one.Error != "" {
				return false, errors.New(one.Error)
			}
			return one.Status == gubernator.Status_UNDER_LIMIT, nil
		}
	}
}
