package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// slow is a limit of a token a minute, two at once.
var slow = admission.Limit{Tokens: 60, Per: time.Hour, Burst: 2}

// limits returns a limiter in memory that gives each tenant slow.
func limits(tb testing.TB) *limiter.Limiter {
	tb.Helper()
	p := policy.Unlimited()
	p.Tiers[policy.StandardTier] = policy.Tier{Limit: slow}
	l, err := limiter.New(store.Single(memory.New(memory.Config{}), nil), limiter.Config{Policy: &p, Timeout: 10 * time.Second})
	check(tb, err)
	return l
}

// health is a service with a unary method and a stream, which note the verdicts that they find.
type health struct {
	grpc_health_v1.UnimplementedHealthServer

	mu       sync.Mutex
	verdicts []limiter.Verdict
}

func (h *health) note(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v, ok := grpclimit.VerdictOf(ctx); ok {
		h.verdicts = append(h.verdicts, v)
	}
}

func (h *health) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	h.note(ctx)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (h *health) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	h.note(stream.Context())
	for range 3 {
		if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
			return err
		}
	}
	return nil
}

// server is a gRPC server behind an interceptor, and a client of it.
type server struct {
	grpc_health_v1.HealthClient

	limits *grpclimit.Interceptor
	health *health
}

func serve(tb testing.TB, checker httplimit.Checker, config grpclimit.Config) *server {
	tb.Helper()
	i, err := grpclimit.New(checker, config)
	check(tb, err)
	s := &server{limits: i, health: &health{}}
	running := grpc.NewServer(grpc.ChainUnaryInterceptor(i.Unary()), grpc.ChainStreamInterceptor(i.Stream()))
	grpc_health_v1.RegisterHealthServer(running, s.health)
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	check(tb, err)
	ended := make(chan error, 1)
	go func() { ended <- running.Serve(listener) }()
	connection, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(tb, err)
	tb.Cleanup(func() {
		check(tb, connection.Close())
		running.Stop()
		check(tb, <-ended)
	})
	s.HealthClient = grpc_health_v1.NewHealthClient(connection)
	return s
}

// answer is what a client sees of a call.
type answer struct {
	code            codes.Code
	messages        int
	header, trailer metadata.MD
	retry           time.Duration
	violated        string
}

func (a *answer) of(err error) *answer {
	s := status.Convert(err)
	a.code = s.Code()
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			a.retry = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			a.violated = d.GetViolations()[0].GetSubject()
		}
	}
	return a
}

// pairs are of metadata.
func (s *server) unary(tb testing.TB, pairs ...string) *answer {
	tb.Helper()
	a := &answer{}
	_, err := s.Check(metadata.AppendToOutgoingContext(tb.Context(), pairs...), &grpc_health_v1.HealthCheckRequest{Service: "x"}, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	return a.of(err)
}

func (s *server) stream(tb testing.TB, pairs ...string) *answer {
	tb.Helper()
	a := &answer{}
	stream, err := s.Watch(metadata.AppendToOutgoingContext(tb.Context(), pairs...), &grpc_health_v1.HealthCheckRequest{})
	check(tb, err)
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			a.messages++
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	a.header, _ = stream.Header()
	a.trailer = stream.Trailer()
	return a.of(err)
}

func only(md metadata.MD, name string) string {
	if values := md.Get(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// TestALimitRefusesByItsCode, RESOURCE_EXHAUSTED, a unary call as a stream, of which the first message counts for all; and says when to come back in three ways.
func TestALimitRefusesByItsCode(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*server, testing.TB, ...string) *answer{"unary": (*server).unary, "stream": (*server).stream} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, limits(t), grpclimit.Config{Tenant: grpclimit.FromMetadata("X-Api-Key")})
			for _, left := range []string{`"tenant";r=1;t=60`, `"tenant";r=0;t=60`} {
				passed := call(s, t, "x-api-key", "sesame")
				if passed.code != codes.OK || only(passed.header, "ratelimit") != left || only(passed.header, "ratelimit-policy") != `"tenant";q=1;w=60;headgate-burst=2` {
					t.Errorf("%+v, want %s", passed, left)
				}
				if only(passed.trailer, "grpc-retry-pushback-ms") != "" || name == "stream" && passed.messages != 3 {
					t.Errorf("%+v", passed)
				}
			}
			refused := call(s, t, "x-api-key", "sesame")
			if refused.code != codes.ResourceExhausted || refused.retry < 50*time.Second || refused.retry > time.Minute || refused.violated != "tenant" || refused.messages != 0 {
				t.Errorf("%+v", refused)
			}
			if pushback := only(refused.trailer, "grpc-retry-pushback-ms"); len(pushback) != 5 || only(refused.header, "ratelimit") != `"tenant";r=0;t=60` {
				t.Errorf("%v %v", refused.header, refused.trailer)
			}
			if other := call(s, t, "x-api-key", "another"); other.code != codes.OK {
				t.Errorf("%+v", other)
			}
			if got := s.limits.Stats(); got != (grpclimit.Stats{Admitted: 3, Refused: 1}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestShadowRefusesNothing, counts all the same, and sends no metadata; the method finds the verdict.
func TestShadowRefusesNothing(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var heard []grpclimit.Refusal
	s := serve(t, limits(t), grpclimit.Config{
		Tenant: grpclimit.Fixed("acme"), Queue: grpclimit.FromMethod(), Shadow: true, InContext: true,
		OnRefused: func(_ context.Context, method string, refusal grpclimit.Refusal) {
			mu.Lock()
			defer mu.Unlock()
			if method == grpc_health_v1.Health_Check_FullMethodName {
				heard = append(heard, refusal)
			}
		},
		Skip: func(_ context.Context, method string) bool {
			return method == grpc_health_v1.Health_Watch_FullMethodName
		},
		Cost: func(_ context.Context, _ string, message any) admission.Tokens {
			return admission.Tokens(len(message.(*grpc_health_v1.HealthCheckRequest).GetService())) // 1
		},
	})
	for range 3 {
		if got := s.unary(t); got.code != codes.OK || only(got.header, "ratelimit") != "" || len(got.trailer) != 0 {
			t.Errorf("%+v", got)
		}
	}
	if got := s.stream(t); got.code != codes.OK || got.messages != 3 {
		t.Errorf("%+v", got)
	}
	if got := s.limits.Stats(); got != (grpclimit.Stats{Admitted: 2, Refused: 1, Skipped: 1}) {
		t.Errorf("%+v", got)
	}
	if len(heard) != 1 || heard[0].Code != codes.ResourceExhausted || heard[0].Verdict.Scope != "acme" {
		t.Errorf("%+v", heard)
	}
	if v := s.health.verdicts; len(v) != 3 || !v[0].Admitted || v[0].TokensLeft != 1 || v[2].Admitted {
		t.Errorf("%+v", v)
	}
}

// TestAStreamFindsItsVerdict in the ctx of its stream, if asked.
func TestAStreamFindsItsVerdict(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		s := serve(t, limits(t), grpclimit.Config{Tenant: grpclimit.Fixed("acme"), InContext: asked, NoMetadata: true})
		if got := s.stream(t); got.code != codes.OK || only(got.header, "ratelimit") != "" {
			t.Errorf("%+v", got)
		}
		if v := s.health.verdicts; (len(v) == 1 && v[0].Admitted && v[0].Scope == "acme") != asked {
			t.Errorf("%t: %+v", asked, v)
		}
	}
}

// TestKeysAreFound: of metadata, of the peer or whom a trusted proxy saw, of the method, of whatever authenticates; what has none shares a tenant.
func TestKeysAreFound(t *testing.T) {
	t.Parallel()
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	user := func(ctx context.Context) string { return only(metadata.Join(firstMD(ctx)), "user") }
	for name, row := range map[string]struct {
		key   grpclimit.KeyFunc
		pairs []string
		want  admission.Scope
	}{
		"peer":               {grpclimit.FromPeer(nil), []string{"x-forwarded-for", "203.0.113.7"}, "ip-127.0.0.1"},
		"behind a proxy":     {grpclimit.FromPeer(loopback), []string{"x-forwarded-for", "1.2.3.4, 203.0.113.7"}, "ip-203.0.113.7"},
		"method":             {grpclimit.FromMethod(), nil, "grpc.health.v1.Health/Check"},
		"metadata":           {grpclimit.FromMetadata("x-api-key"), []string{"x-api-key", "sesame"}, admission.Scope(httplimit.KeyName("sesame"))},
		"none":               {grpclimit.FromMetadata("x-api-key"), nil, httplimit.Anonymous},
		"user":               {grpclimit.FromUser(user), []string{"user", "ada"}, "ada"},
		"user like a key":    {grpclimit.FromUser(user), []string{"user", "ip-127.0.0.1"}, admission.Scope(httplimit.KeyName("ip-127.0.0.1"))},
		"user without name":  {grpclimit.FromUser(user), []string{"user", "a b"}, admission.Scope(httplimit.KeyName("a b"))},
		"the first there is": {grpclimit.First(grpclimit.FromMetadata("x-api-key"), grpclimit.FromUser(user), grpclimit.Fixed("rest")), nil, "rest"},
	} {
		s := serve(t, limits(t), grpclimit.Config{Tenant: row.key, InContext: true})
		if got := s.unary(t, row.pairs...); got.code != codes.OK || len(s.health.verdicts) != 1 || s.health.verdicts[0].Scope != row.want {
			t.Errorf("%s: %+v, %+v, want %s", name, got, s.health.verdicts, row.want)
		}
	}
}

func firstMD(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx)
	return md
}

// TestWithoutRedisTheOutageModeAnswers: closed is UNAVAILABLE with a time to come back, and no limit is told, as nobody knows it.
func TestWithoutRedisTheOutageModeAnswers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	hg, err := headgate.Open(t.Context(), redis.URL(), headgate.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, hg.Close()) })
	servers := map[string]*server{}
	for _, mode := range []string{"closed", "open"} {
		l, err := hg.Limiter(headgate.LimiterConfig{WithoutRedis: mode, Timeout: 10 * time.Second})
		check(t, err)
		servers[mode] = serve(t, l.Verdicts(), grpclimit.Config{Tenant: grpclimit.Fixed("acme")})
		if got := servers[mode].unary(t); got.code != codes.OK || only(got.header, "ratelimit") == "" {
			t.Errorf("%s with Redis: %+v", mode, got)
		}
	}
	redis.Kill(t)
	away := servers["closed"].unary(t)
	if away.code != codes.Unavailable || away.retry < time.Second || away.violated != "" || only(away.header, "ratelimit") != "" || only(away.trailer, "grpc-retry-pushback-ms") == "" {
		t.Errorf("closed: %+v", away)
	}
	if got := servers["open"].unary(t); got.code != codes.OK || only(got.header, "ratelimit") != "" {
		t.Errorf("open: %+v", got)
	}
}

// TestWhatHasNoVerdictDoesNotPass: names and costs that the Config makes up, a cost above the burst, a limiter that is closed.
func TestWhatHasNoVerdictDoesNotPass(t *testing.T) {
	t.Parallel()
	closed := limits(t)
	check(t, closed.Close(t.Context()))
	cost := func(n admission.Tokens) func(context.Context, string, any) admission.Tokens {
		return func(context.Context, string, any) admission.Tokens { return n }
	}
	for name, row := range map[string]struct {
		limits   *limiter.Limiter
		config   grpclimit.Config
		code     codes.Code
		pushback string
	}{
		"tenant":     {limits(t), grpclimit.Config{Tenant: grpclimit.Fixed("a b")}, codes.Internal, "-1"},
		"cost":       {limits(t), grpclimit.Config{Cost: cost(-1)}, codes.Internal, "-1"},
		"too costly": {limits(t), grpclimit.Config{Tenant: grpclimit.Fixed("acme"), Cost: cost(3)}, codes.ResourceExhausted, "-1"},
		"closed":     {closed, grpclimit.Config{Tenant: grpclimit.Fixed("acme")}, codes.Unavailable, "1000"},
	} {
		s := serve(t, row.limits, row.config)
		got := s.unary(t)
		if stats := s.limits.Stats(); got.code != row.code || only(got.trailer, "grpc-retry-pushback-ms") != row.pushback || stats.Failed+stats.Refused != 1 {
			t.Errorf("%s: %+v %+v", name, got, stats)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := grpclimit.New(nil, grpclimit.Config{Queue: grpclimit.FromMethod()})
	const want = "configure grpc limit: invalid limiter nil: allowed is a limiter\ninvalid tenant nil: allowed is a key where there is a queue"
	if err == nil || err.Error() != want || !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := grpclimit.New(limits(t), grpclimit.Config{Tenant: grpclimit.FromMethod(), Class: func(context.Context, string) admission.Priority { return "" }}); err == nil {
		t.Error("a class without a queue")
	}
}

// TestACallIsChargedForItsDimensions: each user has two calls, whoever's tenant it is, and the refusal names the dimension alone.
func TestACallIsChargedForItsDimensions(t *testing.T) {
	t.Parallel()
	p := policy.Unlimited()
	p.Dimensions = map[string]policy.DimensionRules{"user": {Limit: slow}}
	l, err := limiter.New(store.Single(memory.New(memory.Config{}), nil), limiter.Config{Policy: &p, Timeout: 10 * time.Second})
	check(t, err)
	user := func(ctx context.Context, _ string) string {
		md, _ := metadata.FromIncomingContext(ctx)
		return only(md, "user")
	}
	s := serve(t, l, grpclimit.Config{Also: []grpclimit.Also{{Dimension: "user", Value: user}}})
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		if got := s.unary(t, "user", "123"); got.code != want || want != codes.OK && (got.violated != "user" || got.retry <= 0 || only(got.header, "ratelimit") != `"user";r=0;t=60`) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if got := s.unary(t); got.code != codes.OK {
		t.Errorf("a call without a user: %+v", got)
	}
	if _, err := grpclimit.New(l, grpclimit.Config{Also: []grpclimit.Also{{Dimension: "user"}}}); err == nil {
		t.Error("a dimension without a key is taken")
	}
}
