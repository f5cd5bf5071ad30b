package grpclimit_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
)

// A server whose callers have an API key each, and of which each method is a queue with limits of its own if the policy has some.
func Example() {
	ctx := context.Background()
	hg, err := headgate.Open(ctx, "memory:", headgate.Config{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = hg.Close() }()
	limits, err := hg.Limiter(headgate.LimiterConfig{})
	if err != nil {
		panic(err)
	}
	calls, err := grpclimit.New(limits.Verdicts(), grpclimit.Config{
		Tenant: grpclimit.First(grpclimit.FromMetadata("x-api-key"), grpclimit.FromPeer(nil)),
		Queue:  grpclimit.FromMethod(),
		Skip: func(_ context.Context, method string) bool {
			return method == grpc_health_v1.Health_Check_FullMethodName
		},
	})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(calls.Unary()), grpc.ChainStreamInterceptor(calls.Stream()))
	defer server.Stop()
	fmt.Printf("%+v\n", calls.Stats())
	// Output: {Admitted:0 Refused:0 Failed:0 Skipped:0}
}
