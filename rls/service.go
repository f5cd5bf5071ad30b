package rls

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/limitheader"
	"github.com/headgate/headgate/limiter"
)

// Service answers Envoy. Several goroutines may use it. It has none of its own.
type Service struct {
	limits  *limiter.Limiter
	mapping atomic.Pointer[Mapping]
	counts  struct{ calls, refused, shadowed, unknown, failed atomic.Uint64 }
}

// New returns a service over a limiter, which stays its caller's to close.
func New(limits *limiter.Limiter, mapping *Mapping) *Service {
	s := &Service{limits: limits}
	s.SetMapping(mapping)
	return s
}

// SetMapping puts another mapping in force for the calls that begin from now on.
func (s *Service) SetMapping(m *Mapping) { s.mapping.Store(m) }

// Stats is what a Service has seen since it was made.
type Stats struct {
	// Calls were answered OK or OVER_LIMIT, Refused of them the latter. Shadowed are descriptors that would have been refused.
	Calls, Refused, Shadowed uint64
	// Unknown are descriptors that no rule, or no domain, was for.
	Unknown uint64
	// Failed are calls that were answered by an error.
	Failed uint64
}

// Stats returns what was counted.
func (s *Service) Stats() Stats {
	c := &s.counts
	return Stats{c.calls.Load(), c.refused.Load(), c.shadowed.Load(), c.unknown.Load(), c.failed.Load()}
}

// The methods, and the codes of gRPC.
const (
	methodLimit  = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	methodHealth = "/grpc.health.v1.Health/Check"

	grpcOK            = 0
	grpcInvalid       = 3
	grpcNotFound      = 5
	grpcExhausted     = 8
	grpcUnimplemented = 12
	grpcUnavailable   = 14

	prefixBytes = 5
)

// grpcError is an answer without a message.
type grpcError struct {
	code int
	text string
}

func (e *grpcError) Error() string { return e.text }

// ServeHTTP answers a call of gRPC.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 || r.Method != http.MethodPost || !isGRPC(r.Header.Get("Content-Type")) {
		http.Error(w, "this speaks gRPC", http.StatusUnsupportedMediaType)
		return
	}
	answer, err := s.answer(r)
	header := w.Header()
	header.Set("Content-Type", "application/grpc")
	header.Set("Grpc-Accept-Encoding", "identity")
	if err != nil {
		s.counts.failed.Add(1)
		fault := &grpcError{code: grpcUnavailable, text: "not decided"}
		if known, ok := errors.AsType[*grpcError](err); ok {
			fault = known
		} else if bad, ok := errors.AsType[*admission.FieldError](err); ok {
			fault = &grpcError{grpcInvalid, bad.Error()}
		}
		header.Set("Grpc-Status", strconv.Itoa(fault.code))
		header.Set("Grpc-Message", url.PathEscape(fault.text))
		w.WriteHeader(http.StatusOK)
		return
	}
	header.Set("Trailer", "Grpc-Status")
	frame := binary.BigEndian.AppendUint32(make([]byte, 1, prefixBytes+len(answer)), uint32(len(answer))) //nolint:gosec // of 64 statuses at most
	_, _ = w.Write(append(frame, answer...))                                                              // Whoever went away hears nothing.
	header.Set("Grpc-Status", strconv.Itoa(grpcOK))
}

// isGRPC reports whether a type of content is gRPC's with the messages of protobuf, and not that of gRPC-Web.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest == "+proto" || rest[0] == ';')
}

func (s *Service) answer(r *http.Request) ([]byte, error) {
	path := r.URL.Path
	if path != methodLimit && path != methodHealth { // Said before a message comes: on a stream there may be none.
		return nil, &grpcError{grpcUnimplemented, "there is ShouldRateLimit and Health/Check"}
	}
	message, err := readMessage(r.Body)
	switch {
	case err != nil:
		return nil, err
	case path == methodHealth:
		return health(message)
	}
	asked, err := readCall(message)
	if err != nil {
		return nil, &grpcError{grpcInvalid, err.Error()}
	}
	return s.shouldLimit(r.Context(), &asked)
}

// readMessage reads the one message of a unary call.
func readMessage(body io.Reader) ([]byte, error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(body, prefix[:]); err != nil {
		return nil, &grpcError{grpcInvalid, "there is no message"}
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	switch {
	case prefix[0] != 0:
		return nil, &grpcError{grpcUnimplemented, "messages are not to be compressed"}
	case size > maxMessage:
		return nil, &grpcError{grpcExhausted, "a message has " + strconv.Itoa(maxMessage) + " bytes at the most"}
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(body, message); err != nil {
		return nil, &grpcError{grpcInvalid, "the message did not come as a whole"}
	}
	return message, nil
}

// health says SERVING of the whole and of the rate limit service.
func health(message []byte) ([]byte, error) {
	service := ""
	err := fields(message, func(number protowire.Number, value []byte, _ uint64) error {
		if number == 1 {
			service = string(value)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, &grpcError{grpcInvalid, err.Error()}
	case service != "" && service != "envoy.service.ratelimit.v3.RateLimitService":
		return nil, &grpcError{grpcNotFound, "there is no such service"}
	}
	return appendUint(nil, 1, 1), nil
}

// shouldLimit asks for the descriptors of a call: those in shadow each for itself, the others together.
func (s *Service) shouldLimit(ctx context.Context, asked *call) ([]byte, error) {
	domain := s.mapping.Load().Domains[asked.domain]
	statuses := make([]status, len(asked.descriptors))
	var requests []limiter.Request
	var at []int
	for i := range asked.descriptors {
		statuses[i].code = codeOK
		d := &asked.descriptors[i]
		hits := max(asked.hits, 1)
		if d.own {
			hits = d.hits
		}
		rule := domain.rule(d.entries)
		switch {
		case rule == nil:
			s.counts.unknown.Add(1)
		case hits == 0: // Nothing is asked for.
		case domain.Shadow || rule.Shadow:
			if made, err := s.limits.CheckTogether(ctx, []limiter.Request{rule.request(d.entries, hits)}); err == nil && !made.Admitted {
				s.counts.shadowed.Add(1)
			}
		default:
			requests, at = append(requests, rule.request(d.entries, hits)), append(at, i)
		}
	}
	overall, headers := uint64(codeOK), []header(nil)
	if len(requests) > 0 {
		made, err := s.limits.CheckTogether(ctx, requests)
		if err != nil {
			return nil, err
		}
		if !made.Admitted {
			overall = codeOverLimit
			s.counts.refused.Add(1)
		}
		beside := len(requests)
		for n, i := range at {
			next := beside + len(requests[n].Also)
			statuses[i] = statusOf(&made, toldOf(&made, n, beside, next))
			beside = next
		}
		headers = headersOf(&made)
	}
	s.counts.calls.Add(1)
	return writeAnswer(overall, statuses, headers), nil
}

// toldOf is which question of a request an answer tells of: the one that refused, the first of its dimensions where it names no tenant, or its own way.
// Those of its dimensions are from beside to next.
func toldOf(made *limiter.Together, n, beside, next int) int {
	if made.Answers[n].Verdict.Decision != admission.Admitted {
		return n
	}
	for i := beside; i < next; i++ {
		if made.Answers[i].Verdict.Decision != admission.Admitted {
			return i
		}
	}
	if beside < next && made.Questions[n].Tenant == "" {
		return beside
	}
	return n
}

// statusOf tells of the bucket of a request that refused, or else of the innermost, which is the request's own.
func statusOf(made *limiter.Together, n int) status {
	s := status{code: codeOK}
	verdict := &made.Answers[n].Verdict
	if verdict.Decision != admission.Admitted {
		s.code = codeOverLimit
	}
	q := &made.Questions[n]
	for at := int(admission.Levels) - 1; at >= 0; at-- {
		level, limit := admission.Level(at), &q.Limits[at]
		scope := admission.ScopeAt(level, q.Tenant, q.Queue, q.Class)
		if limit.Disabled || limit.Tokens == 0 || s.code == codeOverLimit && verdict.Scope != scope {
			continue
		}
		if shared := level == admission.LevelTenant; q.OfDimension() && (level == admission.LevelGlobal || shared != made.Answers[n].Shared) {
			continue
		}
		left := max(0, made.Answers[n].Left[level].Tokens())
		s.limited, s.name, s.remaining = true, scope.Kind(), uint64(left)
		s.perUnit, s.unit = perUnit(limit.Rate())
		s.untilReset = limit.UntilFull(float64(left), time.Now())
		break
	}
	return s
}

// perUnit is a rate in the shortest of Envoy's units in which it is a request or more.
func perUnit(rate admission.TokensPerSecond) (requests, unit uint64) {
	for i, seconds := range []float64{1, 60, 3600, 86400} {
		if n := float64(rate) * seconds; n >= 1 || seconds == 86400 {
			return uint64(math.Round(n)), uint64(i) + 1 //nolint:gosec // above zero
		}
	}
	return 0, 0
}

// headersOf says of a refusal when to come back.
func headersOf(made *limiter.Together) []header {
	if made.Admitted {
		return nil
	}
	wait := time.Duration(0)
	for i := range made.Answers {
		wait = max(wait, made.Answers[i].Verdict.RetryAfter)
	}
	if wait == 0 {
		return nil
	}
	return []header{{"retry-after", limitheader.Delay(wait)}}
}
