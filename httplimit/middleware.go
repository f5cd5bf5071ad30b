package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/limitheader"
	"github.com/headgate/headgate/limiter"
)

// Middleware lets requests through to handlers as far as a limiter admits them. Several goroutines may use it. It has none of its own.
type Middleware struct {
	limits Checker
	config Config
	told   *memo[toldKey, *told]
	counts struct{ admitted, refused, failed, skipped atomic.Uint64 }
}

// New returns a filter over a limiter, which stays its caller's to close. The error joins one *headgate.FieldError for each bad field.
func New(limits Checker, config Config) (*Middleware, error) {
	err := config.validate()
	if limits == nil {
		err = errors.Join(&admission.FieldError{Field: "limiter", Value: "nil", Allowed: "a limiter"}, err)
	}
	if err != nil {
		return nil, fmt.Errorf("configure http limit: %w", err)
	}
	return &Middleware{limits: limits, config: config, told: newMemo[toldKey, *told]()}, nil
}

// Stats is how many requests a Middleware has seen since it was made.
type Stats struct {
	// Admitted and Refused were answered by the limiter; with Shadow, Refused passed all the same.
	Admitted, Refused uint64
	// Failed had no verdict: a name or cost that is not allowed, a limiter that is closed, a client that has gone.
	Failed uint64
	// Skipped were not asked for.
	Skipped uint64
}

// Stats returns what was counted.
func (m *Middleware) Stats() Stats {
	return Stats{Admitted: m.counts.admitted.Load(), Refused: m.counts.refused.Load(), Failed: m.counts.failed.Load(), Skipped: m.counts.skipped.Load()}
}

// Wrap returns a handler that asks the limiter before next is called. Next gets the very ResponseWriter, so that it may stream or take the
// connection over; a request is asked for once, however long its connection lives.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.config.Skip != nil && m.config.Skip(r) {
			m.counts.skipped.Add(1)
			next.ServeHTTP(w, r)
			return
		}
		verdict, err := m.limits.Check(r.Context(), m.requestOf(r))
		switch {
		case err != nil || !verdict.Admitted:
			refusal := refusalOf(verdict, err)
			m.refuse(w, r, &refusal)
			if !m.config.Shadow {
				return
			}
		default:
			m.counts.admitted.Add(1)
			m.tell(w, verdict, 0)
		}
		if m.config.InContext && err == nil {
			r = r.WithContext(context.WithValue(r.Context(), contextKey{}, verdict))
		}
		next.ServeHTTP(w, r)
	})
}

// requestOf is what the limiter is asked of a request.
func (m *Middleware) requestOf(r *http.Request) limiter.Request {
	c := &m.config
	asked := limiter.Request{Remaining: c.InContext || !c.Shadow && (!c.NoRateLimit || c.XRateLimit != "")}
	if c.Tenant != nil {
		if asked.Tenant = c.Tenant(r); asked.Tenant == "" {
			asked.Tenant = Anonymous
		}
	}
	if c.Queue != nil {
		asked.Queue = c.Queue(r)
	}
	if c.Class != nil && asked.Queue != "" {
		asked.Class = c.Class(r)
	}
	if len(c.Also) > 0 {
		asked.Also = make([]limiter.Dimension, 0, len(c.Also))
	}
	for i := range c.Also {
		if value := c.Also[i].Value(r); value != "" {
			asked.Also = append(asked.Also, limiter.Dimension{Name: c.Also[i].Dimension, Value: value})
		}
	}
	if c.Cost != nil {
		asked.Cost = c.Cost(r)
	}
	return asked
}

// refuse counts a refusal, and answers with it unless it is in shadow.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, refusal *Refusal) {
	counter := &m.counts.refused
	if refusal.Err != nil {
		counter = &m.counts.failed
	}
	counter.Add(1)
	if m.config.OnRefused != nil {
		m.config.OnRefused(r, *refusal)
	}
	if m.config.Shadow {
		return
	}
	m.tell(w, refusal.Verdict, refusal.RetryAfter)
	if refusal.RetryAfter > 0 {
		w.Header().Set(limitheader.RetryAfterField, limitheader.Delay(refusal.RetryAfter))
	}
	if m.config.Answer == nil {
		Problem(w, r, *refusal)
		return
	}
	once := &onceWriter{ResponseWriter: w, status: refusal.Status}
	m.config.Answer(once, r, *refusal)
	if !once.wrote {
		Problem(w, r, *refusal)
	}
}

type contextKey struct{}

// VerdictOf returns the verdict on the request of a ctx, if a Middleware with Config.InContext has given one; the innermost of several.
func VerdictOf(ctx context.Context) (limiter.Verdict, bool) {
	verdict, ok := ctx.Value(contextKey{}).(limiter.Verdict)
	return verdict, ok
}
