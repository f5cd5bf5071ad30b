package rlstest

import (
	"context"
	"net"
	"testing"
	"time"

	extension "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/unary"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/rls"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

const mapping = `
domains:
  edge:
    rules:
      - {match: [{key: tenant}], tenant_from: tenant}
      - {match: [{key: tenant}, {key: path, value: /search}], tenant_from: tenant, queue: search}
      - {match: [{key: probe}], tenant_from: probe, shadow: true}
`

// limits returns a limiter in memory that gives every tenant some requests a day.
func limits(tb testing.TB, tokens admission.Tokens) *limiter.Limiter {
	tb.Helper()
	p := policy.Unlimited()
	p.Tiers[policy.StandardTier] = policy.Tier{Limit: admission.Limit{Tokens: tokens, Per: 24 * time.Hour, Burst: tokens}}
	l, err := limiter.New(store.Single(memory.New(memory.Config{}), nil), limiter.Config{Policy: &p, Exact: true, Timeout: 10 * time.Second})
	check(tb, err)
	return l
}

// server is a rate limit service at an address of its own, with the bounds of `headgate serve`.
type server struct {
	*unary.Server

	service *rls.Service
	address string
}

// newServer serves what wrap makes of the service, or the service itself.
func newServer(tb testing.TB, l *limiter.Limiter, wrap func(next unary.Handler) unary.Handler) *server {
	tb.Helper()
	m, err := rls.ReadMapping([]byte(mapping))
	check(tb, err)
	s := &server{service: rls.New(l, m)}
	handler := unary.Handler(s.service)
	if wrap != nil {
		handler = wrap(handler)
	}
	s.Server = &unary.Server{
		Handler: handler, MaxMessage: 64 << 10, MaxMetadata: 16 << 10, MaxCalls: 250, Timeout: 5 * time.Second, Idle: time.Minute, OnDenied: func() {},
		OnPanic: func(problem any, stack []byte) { tb.Errorf("%v\n%s", problem, stack) },
	}
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	check(tb, err)
	s.address = listener.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	tb.Cleanup(func() {
		s.Close()
		<-ended //nolint:errcheck // It says that it has ended.
	})
	return s
}

// dial returns a connection of grpc-go, one of HTTP/2.
func dial(tb testing.TB, target string, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	connection, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	check(tb, err)
	tb.Cleanup(func() { check(tb, connection.Close()) })
	return connection
}

func (s *server) client(tb testing.TB) ratelimit.RateLimitServiceClient {
	tb.Helper()
	return ratelimit.NewRateLimitServiceClient(dial(tb, "passthrough:///"+s.address))
}

// within bounds a call.
func within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// asked is a request of the domain edge.
func asked(hits uint32, descriptors ...*extension.RateLimitDescriptor) *ratelimit.RateLimitRequest {
	return &ratelimit.RateLimitRequest{Domain: "edge", HitsAddend: hits, Descriptors: descriptors}
}

// descriptor has pairs of keys and values.
func descriptor(pairs ...string) *extension.RateLimitDescriptor {
	d := &extension.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &extension.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// costing is a descriptor with an addend of its own.
func costing(hits uint64, pairs ...string) *extension.RateLimitDescriptor {
	d := descriptor(pairs...)
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}
