package httplimit

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/limiter"
)

// Checker is what a Middleware asks: a *limiter.Limiter, or headgate.Limiter.Verdicts. Several goroutines call it.
type Checker interface {
	Check(ctx context.Context, r limiter.Request) (limiter.Verdict, error)
}

// Config is how a Middleware asks and answers. The zero Config asks the global limit alone. Its functions are called by many goroutines at a
// time; one that panics does so in the request's goroutine, as a handler would.
type Config struct {
	// Tenant says whose request it is. Nil asks the global limit alone.
	Tenant KeyFunc
	// Queue says where the request goes, for the limits of the tenant's queues; nil, or a key that is empty, asks no further than the tenant's.
	Queue KeyFunc
	// Class is the request's class in its queue, a name or a number as of jobs; nil or empty asks no further than the queue's limit.
	Class func(*http.Request) admission.Priority
	// Also are up to limiter.MaxAlso dimensions of the policy, such as users, addresses and routes: a request passes if its way and all of these have the
	// tokens, and takes them of all or of none. A key that is empty leaves its dimension out.
	Also []Also
	// Cost is 1 to headgate.MaxCost tokens; nil or zero means 1.
	Cost func(*http.Request) admission.Tokens
	// Skip lets a request pass unasked and uncharged, such as a probe of the server's health.
	Skip func(*http.Request) bool
	// Shadow asks, charges and counts, but refuses nothing and sends no header.
	Shadow bool
	// OnRefused hears of each request that is refused, or with Shadow would be, before it is answered.
	OnRefused func(*http.Request, Refusal)
	// Answer writes the answer to a refused request, when its headers are set; nil means Problem. What it writes first without a
	// status has the Refusal's; where it writes nothing, Problem does.
	Answer func(http.ResponseWriter, *http.Request, Refusal)
	// NoRateLimit sends neither RateLimit nor RateLimit-Policy.
	NoRateLimit bool
	// XRateLimit also sends X-RateLimit-Limit, -Remaining and -Reset, the burst, what is left of it, and when it is full again; empty
	// sends none. With ResetEpoch an answer costs an allocation or two.
	XRateLimit Reset
	// InContext gives handlers the verdict (VerdictOf). It costs a request three allocations.
	InContext bool
}

// Also is a dimension of requests, and what names a request's value of it: any text of up to policy.MaxDimensionValue bytes.
type Also struct {
	Dimension string
	Value     KeyFunc
}

// Reset is how X-RateLimit-Reset is written.
type Reset string

// The forms.
const (
	// ResetDelta is seconds from now, rounded up.
	ResetDelta Reset = "delta"
	// ResetEpoch is seconds since 1970 by the server's clock, rounded up.
	ResetEpoch Reset = "epoch"
)

func (c *Config) validate() error {
	var bad []error
	if c.Queue != nil && c.Tenant == nil {
		bad = append(bad, &admission.FieldError{Field: "tenant", Value: "nil", Allowed: "a key where there is a queue"})
	}
	if c.Class != nil && c.Queue == nil {
		bad = append(bad, &admission.FieldError{Field: "queue", Value: "nil", Allowed: "a key where there is a class"})
	}
	if n := len(c.Also); n > limiter.MaxAlso {
		bad = append(bad, &admission.FieldError{Field: "also", Value: strconv.Itoa(n) + " dimensions", Allowed: "up to " + strconv.Itoa(limiter.MaxAlso)})
	}
	for i := range c.Also {
		if also := &c.Also[i]; also.Dimension == "" || also.Value == nil {
			bad = append(bad, &admission.FieldError{Field: "also", Value: strconv.Quote(also.Dimension), Allowed: "the name of a dimension, with a key for its value"})
		}
	}
	switch c.XRateLimit {
	case "", ResetDelta, ResetEpoch:
	default:
		bad = append(bad, &admission.FieldError{Field: "x-ratelimit", Value: strconv.Quote(string(c.XRateLimit)), Allowed: "empty, delta or epoch"})
	}
	return errors.Join(bad...)
}
