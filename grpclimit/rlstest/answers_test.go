package rlstest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	extension "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // One that clients may ask for.
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TestADeniedDescriptorChargesNoneOfTheOthers: statuses come in order, each with its own limit, and an addend is the call's or the descriptor's own.
func TestADeniedDescriptorChargesNoneOfTheOthers(t *testing.T) {
	t.Parallel()
	client := newServer(t, limits(t, 10), nil).client(t)
	for i, row := range []struct {
		asked *ratelimit.RateLimitRequest
		want  string
	}{
		{asked(0, descriptor("tenant", "acme")), "OK: OK 9"},
		{asked(3, descriptor("tenant", "acme")), "OK: OK 6"},
		{asked(3, descriptor("tenant", "acme"), costing(8, "tenant", "other")), "OK: OK 3, OK 2"},
		{asked(1, descriptor("tenant", "acme"), costing(3, "tenant", "other"), descriptor("tenant", "third")), "OVER_LIMIT: OK 3, OVER_LIMIT 2, OK 10"},
		{asked(1, descriptor("tenant", "acme"), descriptor("nobody", "knows"), descriptor("tenant", "third")), "OK: OK 2, OK unlimited, OK 9"},
		{asked(1, costing(0, "tenant", "acme")), "OK: OK unlimited"},
		{asked(9, descriptor("probe", "acme")), "OK: OK unlimited"},
		{asked(2, descriptor("tenant", "acme", "path", "/search")), "OK: OK 0"},
		{asked(0, descriptor("tenant", "acme", "path", "/search")), "OVER_LIMIT: OVER_LIMIT 0"},
		{&ratelimit.RateLimitRequest{Domain: "elsewhere", Descriptors: []*extension.RateLimitDescriptor{descriptor("tenant", "acme")}}, "OK: OK unlimited"},
		{asked(1), "OK: "},
	} {
		answer, err := client.ShouldRateLimit(within(t), row.asked)
		check(t, err)
		var told []string
		for _, s := range answer.GetStatuses() {
			one := s.GetCode().String() + " unlimited"
			if limit := s.GetCurrentLimit(); limit != nil {
				one = fmt.Sprintf("%s %d", s.GetCode(), s.GetLimitRemaining())
				if limit.GetRequestsPerUnit() != 10 || limit.GetUnit() != ratelimit.RateLimitResponse_RateLimit_DAY || limit.GetName() != "tenant" {
					t.Errorf("%d: limit %v", i, limit)
				}
				full := time.Duration(10-s.GetLimitRemaining()) * 24 * time.Hour / 10
				if until := s.GetDurationUntilReset().AsDuration(); until < full-3*time.Hour || until > full {
					t.Errorf("%d: full in %v, want %v", i, until, full)
				}
			}
			told = append(told, one)
		}
		if got := answer.GetOverallCode().String() + ": " + strings.Join(told, ", "); got != row.want {
			t.Errorf("%d: %s, want %s", i, got, row.want)
		}
		refused := answer.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT
		if headers := answer.GetResponseHeadersToAdd(); (len(headers) == 1 && headers[0].GetKey() == "retry-after" && headers[0].GetValue() != "0") != refused || len(headers) > 1 {
			t.Errorf("%d: headers %v", i, headers)
		}
		if len(answer.ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("%d: %v has fields that Envoy does not know", i, answer)
		}
	}
}

// TestHealthIsChecked: what there is, what there is not, and that nobody is left waiting for a stream.
func TestHealthIsChecked(t *testing.T) {
	t.Parallel()
	s := newServer(t, limits(t, 10), nil)
	health := grpc_health_v1.NewHealthClient(dial(t, "passthrough:///"+s.address))
	for service, want := range map[string]codes.Code{"": codes.OK, ratelimit.RateLimitService_ServiceDesc.ServiceName: codes.OK, "a.B": codes.NotFound} {
		answer, err := health.Check(within(t), &grpc_health_v1.HealthCheckRequest{Service: service})
		if status.Code(err) != want || err == nil && answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, answer, err)
		}
	}
	watch, err := health.Watch(within(t), &grpc_health_v1.HealthCheckRequest{})
	check(t, err)
	if _, err := watch.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("Watch: %v", err)
	}
	_, err = health.List(within(t), &grpc_health_v1.HealthListRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("List: %v", err)
	}
}

// TestAStreamOfAMethodThatThereIsNotEndsAtOnce, whether or not anything is sent on it: reflection is what tools try first.
func TestAStreamOfAMethodThatThereIsNotEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t, limits(t, 10), nil)
	stream, err := dial(t, "passthrough:///"+s.address).NewStream(within(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
	check(t, err)
	began := time.Now()
	if err := stream.RecvMsg(&grpc_health_v1.HealthCheckResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestWhatIsNotTakenIsSaidByCode: a compressed message with what is taken instead, one that is too long, more descriptors than there may be.
func TestWhatIsNotTakenIsSaidByCode(t *testing.T) {
	t.Parallel()
	client := newServer(t, limits(t, 10), nil).client(t)
	var trailer metadata.MD
	_, err := client.ShouldRateLimit(within(t), asked(1, descriptor("tenant", strings.Repeat("a", 1000))), grpc.UseCompressor("gzip"), grpc.Trailer(&trailer))
	if got := trailer.Get("grpc-accept-encoding"); status.Code(err) != codes.Unimplemented || len(got) != 1 || got[0] != "identity" {
		t.Errorf("compressed: %v, accepted is %v", err, got)
	}
	for name, row := range map[string]struct {
		asked *ratelimit.RateLimitRequest
		want  codes.Code
	}{
		"just short enough": {asked(1, descriptor("nobody", strings.Repeat("a", 64<<10-100))), codes.OK},
		"too long":          {asked(1, descriptor("nobody", strings.Repeat("a", 64<<10))), codes.ResourceExhausted},
		"much too long":     {asked(1, descriptor("nobody", strings.Repeat("a", 3<<20))), codes.ResourceExhausted},
		"most descriptors":  {asked(1, many(64)...), codes.OK},
		"one too many":      {asked(1, many(65)...), codes.InvalidArgument},
		"too costly":        {asked(1, costing(1<<62, "tenant", "acme")), codes.OK}, // Over the limit: an error would let it through.
	} {
		if _, err := client.ShouldRateLimit(within(t), row.asked); status.Code(err) != row.want {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
	}
	if _, err := client.ShouldRateLimit(within(t), asked(1, descriptor("tenant", "%ü/\n"))); err != nil {
		t.Errorf("a value that is no name: %v", err)
	}
}

func many(n int) (all []*extension.RateLimitDescriptor) {
	for range n {
		all = append(all, descriptor("nobody", "knows"))
	}
	return all
}

// TestMetadataIsBounded: 8 KiB pass, which no token of a mesh has; more than 16 KiB fail one call and no other of its connection.
func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	client := newServer(t, limits(t, 10), nil).client(t)
	for _, row := range []struct {
		bytes  int
		passes bool
	}{{8 << 10, true}, {64 << 10, false}, {0, true}, {2 << 20, false}, {8 << 10, true}} {
		ctx := metadata.AppendToOutgoingContext(within(t), "x-large", string(bytes.Repeat([]byte("a"), row.bytes)))
		if _, err := client.ShouldRateLimit(ctx, asked(1, descriptor("tenant", "acme"))); (err == nil) != row.passes {
			t.Errorf("%d bytes: %v", row.bytes, err)
		}
	}
}
