package rls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/limitheader"
	"github.com/headgate/headgate/internal/unary"
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

// The methods.
const (
	methodLimit  = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	methodHealth = "/grpc.health.v1.Health/Check"
)

// The bounds of a service.
const (
	maxMetadata = 16 << 10
	maxCalls    = 1000 // of a connection at a time
	timeout     = 5 * time.Second
	idle        = 5 * time.Minute
)

// Serve answers the connections of a listener, which may be one of TLS whose clients say h2, until ctx ends: then no more calls are taken, and those that
// have begun are answered, within five seconds. It returns nil, or why the listener failed. panicked hears of a call that has panicked, with its stack.
func (s *Service) Serve(ctx context.Context, listener net.Listener, panicked func(problem any, stack []byte)) error {
	server := &unary.Server{
		Handler: s, MaxMessage: maxMessage, MaxMetadata: maxMetadata, MaxCalls: maxCalls, Timeout: timeout, Idle: idle,
		OnDenied: func() { s.counts.failed.Add(1) }, OnPanic: panicked,
	}
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		ended <- server.Shutdown(end)
	})
	err := server.Serve(listener) //nolint:contextcheck // Calls have the ctx of their connection.
	if !stop() {
		err = <-ended
	} else {
		server.Close()
	}
	if err != nil {
		return fmt.Errorf("serve the rate limit service: %w", err)
	}
	return nil
}

// Knows says that there is a method: ShouldRateLimit and Health/Check.
func (*Service) Knows(method string) bool { return method == methodLimit || method == methodHealth }

// Answer returns the message that answers that of a call of a method that it knows. The error says by which code of gRPC it is answered else.
func (s *Service) Answer(ctx context.Context, method string, message []byte) (answer []byte, err error) {
	if method == methodHealth {
		answer, err = health(message)
	} else if asked, bad := readCall(message); bad != nil {
		err = &unary.Status{Code: unary.Invalid, Text: bad.Error()}
	} else {
		answer, err = s.shouldLimit(ctx, &asked)
	}
	if err == nil {
		return answer, nil
	}
	s.counts.failed.Add(1)
	if bad, ok := errors.AsType[*admission.FieldError](err); ok {
		err = &unary.Status{Code: unary.Invalid, Text: bad.Error()}
	}
	return nil, err
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
		return nil, &unary.Status{Code: unary.Invalid, Text: err.Error()}
	case service != "" && service != "envoy.service.ratelimit.v3.RateLimitService":
		return nil, &unary.Status{Code: unary.NotFound, Text: "there is no such service"}
	}
	return appendUint(nil, 1, 1), nil
}

// shouldLimit asks for the descriptors of a call: those in shadow each for itself, the others together.
func (s *Service) shouldLimit(ctx context.Context, asked *call) ([]byte, error) {
	domain := s.mapping.Load().Domains[asked.domain]
	statuses, costly := make([]status, len(asked.descriptors)), false
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
		case hits > uint64(admission.MaxCost) && !domain.Shadow && !rule.Shadow: // No limit lets it pass, and an error would: clients may say how much it is.
			statuses[i].code, costly = codeOverLimit, true
		case domain.Shadow || rule.Shadow:
			if made, err := s.limits.CheckTogether(ctx, []limiter.Request{rule.request(d.entries, hits)}); hits > uint64(admission.MaxCost) || err == nil && !made.Admitted {
				s.counts.shadowed.Add(1)
			}
		default:
			requests, at = append(requests, rule.request(d.entries, hits)), append(at, i)
		}
	}
	overall, headers := uint64(codeOK), []header(nil)
	if costly {
		overall = codeOverLimit
		s.counts.refused.Add(1)
	} else if len(requests) > 0 {
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

// perUnit is a rate in the shortest of Envoy's units in which it is a whole number of requests, and where there is none rounded, a day's.
func perUnit(rate admission.TokensPerSecond) (requests, unit uint64) {
	n := 0.0
	for i, seconds := range []float64{1, 60, 3600, 86400} {
		n = float64(rate) * seconds
		if whole := math.Round(n); whole >= 1 && math.Abs(n-whole) < 1e-6*whole {
			return uint64(whole), uint64(i) + 1 //nolint:gosec // above zero
		}
	}
	return uint64(max(1, math.Round(n))), unitDay
}

// unitDay is Envoy's largest unit that all of its releases know.
const unitDay = 4

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
