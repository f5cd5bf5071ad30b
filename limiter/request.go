package limiter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Request asks for tokens of every limit on a way: the global one, the tenant's, that of its queue and of its class there.
type Request struct {
	// Tenant, Queue and Class name the way, each empty where the way ends before it. What a queue stands for is the caller's
	// choice: an endpoint, a downstream, a kind of work.
	Tenant, Queue string
	Class         admission.Priority
	// Cost is 1 to headgate.MaxCost tokens; zero means 1, and of a Reserve what work of this kind has cost of late.
	Cost admission.Tokens
	// Also are up to MaxAlso dimensions of the request, each of another name that the policy declares: it is admitted if its way and all of them have
	// the tokens, and takes them of all or of none. Reserve takes its cost of each, and Commit corrects each.
	Also []Dimension
	// Remaining asks to be told what is left where the request is admitted: in Verdict Scope, TokensLeft, Burst and Rate. A check that
	// Redis answers has some 20 bytes more for it; one by lease takes some 10 ns longer.
	Remaining bool
}

// route is what names a way.
type route struct {
	tenant, queue string
	class         admission.Priority
}

func (r *Request) route() route { return route{r.Tenant, r.Queue, r.Class} }

func (r *route) validate() error {
	if strings.HasPrefix(r.tenant, admission.DimensionMark) { // One that spread has made.
		return nil
	}
	var bad []error
	if r.tenant != "" {
		bad = append(bad, admission.ValidateTenant(r.tenant))
	} else if r.queue != "" {
		bad = append(bad, &admission.FieldError{Field: "tenant", Value: `""`, Allowed: "a name where there is a queue"})
	}
	if r.queue != "" {
		bad = append(bad, admission.ValidateName("queue", r.queue, true))
	} else if r.class != "" {
		bad = append(bad, &admission.FieldError{Field: "queue", Value: `""`, Allowed: "a name where there is a class"})
	}
	if r.class != "" {
		bad = append(bad, admission.ValidateName("class", string(r.class), true))
	}
	return errors.Join(bad...)
}

func checkCost(cost admission.Tokens) error {
	if cost < 1 || cost > admission.MaxCost {
		return &admission.FieldError{Field: "cost", Value: strconv.FormatInt(int64(cost), 10), Allowed: fmt.Sprintf("1 to %d tokens, or 0 for 1", admission.MaxCost)}
	}
	return nil
}

// Source says who gave an answer.
type Source uint8

// The sources.
const (
	// Exact is Redis.
	Exact Source = iota
	// Leased is tokens that this process holds, or a way without limits.
	Leased
	// Cached is a denial that is still good.
	Cached
	// Blind is the outage mode: Redis did not answer.
	Blind
)

// String returns the source's name.
func (s Source) String() string {
	switch s {
	case Exact:
		return "exact"
	case Leased:
		return "leased"
	case Cached:
		return "cached"
	case Blind:
		return "blind"
	}
	return "unknown"
}

// Verdict is the answer to a Request. It is a plain value.
//
//nolint:recvcheck // It is a plain value, which one method fills.
type Verdict struct {
	// Admitted says that the tokens were taken, of every scope on the way; otherwise of none.
	Admitted bool
	// Source is who answered.
	Source Source
	// Reason is why it was refused: ReasonLimited, ReasonTooCostly, ReasonBuckets, ReasonMemory or ReasonUnavailable.
	Reason admission.Reason
	// Scope is the refusing one. Its bucket held TokensLeft, rounded down, of Burst, and gains Rate. Of what was admitted, if
	// Request.Remaining asks for it, it is the scope on the way whose bucket has least left where Redis has answered, and the one with the
	// smallest burst after a check by lease: there TokensLeft is what this process has on lease, a lower bound, as the bucket may hold
	// more. Where partitions divide the global limit, Burst and Rate are those of a part. Rate is zero where Source is Blind.
	Scope             admission.Scope
	TokensLeft, Burst admission.Tokens
	Rate              admission.TokensPerSecond
	// Window is that of a scope whose limit is one of windows, which gains Rate in the mean: all of Burst as the next one begins, or each as it is as
	// old as a sliding one.
	Window admission.Window
	// RetryAfter is how long to wait until the scope would hold enough; zero where that is of no use.
	RetryAfter time.Duration
}

// Err returns nil for what was admitted, else a *headgate.RefusedError.
func (v Verdict) Err() error {
	if v.Admitted {
		return nil
	}
	return &admission.RefusedError{Verdict: admission.Verdict{
		Reason: v.Reason, Scope: v.Scope, TokensLeft: v.TokensLeft, Burst: v.Burst, RetryAfter: v.RetryAfter,
	}}
}

func verdictOf(v *admission.Verdict) Verdict {
	return Verdict{
		Admitted: v.Decision == admission.Admitted, Reason: v.Reason, Scope: v.Scope, TokensLeft: v.TokensLeft, Burst: v.Burst, RetryAfter: v.RetryAfter,
	}
}
