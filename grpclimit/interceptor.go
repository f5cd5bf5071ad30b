package grpclimit

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/limitheader"
	"github.com/headgate/headgate/limiter"
)

// Interceptor lets calls through to methods as far as a limiter admits them. Several goroutines may use it. It has none of its own.
type Interceptor struct {
	limits httplimit.Checker
	config Config
	counts struct{ admitted, refused, failed, skipped atomic.Uint64 }
}

// New returns an interceptor over a limiter, which stays its caller's to close. The error joins one *headgate.FieldError for each bad field.
func New(limits httplimit.Checker, config Config) (*Interceptor, error) {
	if err := config.validate(limits); err != nil {
		return nil, err
	}
	return &Interceptor{limits: limits, config: config}, nil
}

// Stats is how many calls an Interceptor has seen since it was made, as httplimit's.
type Stats = httplimit.Stats

// Stats returns what was counted.
func (i *Interceptor) Stats() Stats {
	c := &i.counts
	return Stats{Admitted: c.admitted.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(), Skipped: c.skipped.Load()}
}

// Unary is for grpc.UnaryInterceptor and grpc.ChainUnaryInterceptor.
func (i *Interceptor) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		own, err := i.ask(ctx, info.FullMethod, message)
		if err != nil {
			return nil, err
		}
		return handler(own, message)
	}
}

// Stream is for grpc.StreamInterceptor and grpc.ChainStreamInterceptor.
func (i *Interceptor) Stream() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		own, err := i.ask(stream.Context(), info.FullMethod, nil)
		if err != nil {
			return err
		}
		if i.config.InContext {
			stream = &toldStream{stream, own}
		}
		return handler(server, stream)
	}
}

// toldStream is a stream with the verdict in its ctx.
type toldStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // Streams have theirs.
}

func (s *toldStream) Context() context.Context { return s.ctx }

// ask returns the ctx of a call that passes, or the error that refuses it.
func (i *Interceptor) ask(ctx context.Context, method string, message any) (context.Context, error) {
	c := &i.config
	if c.Skip != nil && c.Skip(ctx, method) {
		i.counts.skipped.Add(1)
		return ctx, nil
	}
	verdict, err := i.limits.Check(ctx, i.requestOf(ctx, method, message))
	if err != nil || !verdict.Admitted {
		if err := i.refuse(ctx, method, verdict, err); !c.Shadow {
			return ctx, err
		}
	} else {
		i.counts.admitted.Add(1)
		i.tell(ctx, verdict, 0)
	}
	if c.InContext && err == nil {
		ctx = context.WithValue(ctx, contextKey{}, verdict)
	}
	return ctx, nil
}

// requestOf is what the limiter is asked of a call.
func (i *Interceptor) requestOf(ctx context.Context, method string, message any) limiter.Request {
	c := &i.config
	asked := limiter.Request{Remaining: c.InContext || !c.Shadow && !c.NoMetadata}
	if c.Tenant != nil {
		if asked.Tenant = c.Tenant(ctx, method); asked.Tenant == "" {
			asked.Tenant = httplimit.Anonymous
		}
	}
	if c.Queue != nil {
		asked.Queue = c.Queue(ctx, method)
	}
	if c.Class != nil && asked.Queue != "" {
		asked.Class = c.Class(ctx, method)
	}
	for i := range c.Also {
		if value := c.Also[i].Value(ctx, method); value != "" {
			asked.Also = append(asked.Also, limiter.Dimension{Name: c.Also[i].Dimension, Value: value})
		}
	}
	if c.Cost != nil {
		asked.Cost = c.Cost(ctx, method, message)
	}
	return asked
}

// refuse counts a refusal, and returns the error that it is.
func (i *Interceptor) refuse(ctx context.Context, method string, verdict limiter.Verdict, err error) error {
	counter := &i.counts.refused
	if err != nil {
		counter = &i.counts.failed
	}
	counter.Add(1)
	refusal := refusalOf(verdict, err)
	if i.config.OnRefused != nil {
		i.config.OnRefused(ctx, method, refusal)
	}
	if i.config.Shadow {
		return nil
	}
	i.tell(ctx, verdict, refusal.RetryAfter)
	pushback := "-1" // Which gRPC's retries take for never.
	if refusal.RetryAfter > 0 {
		pushback = strconv.FormatInt(int64((refusal.RetryAfter+time.Millisecond-1)/time.Millisecond), 10)
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", pushback)) // Whoever went away hears nothing.
	return refusal.status()
}

// The metadata of answers, by the names that HTTP has for them.
const (
	limitName  = "ratelimit"
	policyName = "ratelimit-policy"
)

// tell sets the metadata that tells of the tightest limit, if there is one to be told.
func (i *Interceptor) tell(ctx context.Context, verdict limiter.Verdict, retryAfter time.Duration) {
	c := &i.config
	if c.Shadow || c.NoMetadata || verdict.Rate == 0 {
		return
	}
	if verdict.Scope == admission.Global && c.Tenant != nil {
		return
	}
	b := limitheader.Bucket{Name: verdict.Scope.Kind(), Rate: verdict.Rate, Burst: verdict.Burst, Left: float64(verdict.TokensLeft), Window: verdict.Window}
	_ = grpc.SetHeader(ctx, metadata.Pairs(policyName, b.Policy(), limitName, b.Limit(retryAfter))) // Whoever went away hears nothing.
}

type contextKey struct{}

// VerdictOf returns the verdict on the call of a ctx, if an Interceptor with Config.InContext has given one; the innermost of several.
func VerdictOf(ctx context.Context) (limiter.Verdict, bool) {
	verdict, ok := ctx.Value(contextKey{}).(limiter.Verdict)
	return verdict, ok
}

// isInvalid reports an error of names or costs.
func isInvalid(err error) bool {
	_, ok := errors.AsType[*admission.FieldError](err)
	return ok
}
