package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/limiter"
)

// Config is how an Interceptor asks and answers. The zero Config asks the global limit alone. Its functions are called by many goroutines at a
// time, before the message of a stream is read. method is the full one, such as "/helloworld.Greeter/SayHello".
type Config struct {
	// Tenant says whose call it is. Nil asks the global limit alone; calls without a key share httplimit.Anonymous.
	Tenant KeyFunc
	// Queue says where the call goes, for the limits of the tenant's queues (FromMethod); nil, or a key that is empty, asks no further than the tenant's.
	Queue KeyFunc
	// Class is the call's class in its queue, a name or a number as of jobs; nil or empty asks no further than the queue's limit.
	Class func(ctx context.Context, method string) admission.Priority
	// Also are up to limiter.MaxAlso dimensions of the policy, such as users and methods: a call passes if its way and all of these have the tokens, and takes
	// them of all or of none. A key that is empty leaves its dimension out.
	Also []Also
	// Cost is 1 to headgate.MaxCost tokens; nil or zero means 1. message is that of a unary call, and nil of a stream.
	Cost func(ctx context.Context, method string, message any) admission.Tokens
	// Skip lets a call pass unasked and uncharged, such as grpc.health.v1's.
	Skip func(ctx context.Context, method string) bool
	// Shadow asks, charges and counts, but refuses nothing and sends no metadata.
	Shadow bool
	// OnRefused hears of each call that is refused, or with Shadow would be, before it is answered.
	OnRefused func(ctx context.Context, method string, refusal Refusal)
	// NoMetadata sends neither ratelimit nor ratelimit-policy.
	NoMetadata bool
	// InContext gives methods the verdict (VerdictOf).
	InContext bool
}

// Also is a dimension of calls, and what names a call's value of it: any text of up to policy.MaxDimensionValue bytes.
type Also struct {
	Dimension string
	Value     KeyFunc
}

func (c *Config) validate(limits httplimit.Checker) error {
	var bad []error
	for _, row := range []struct {
		missing        bool
		field, allowed string
	}{
		{limits == nil, "limiter", "a limiter"},
		{c.Queue != nil && c.Tenant == nil, "tenant", "a key where there is a queue"},
		{c.Class != nil && c.Queue == nil, "queue", "a key where there is a class"},
	} {
		if row.missing {
			bad = append(bad, &admission.FieldError{Field: row.field, Value: "nil", Allowed: row.allowed})
		}
	}
	if n := len(c.Also); n > limiter.MaxAlso {
		bad = append(bad, &admission.FieldError{Field: "also", Value: strconv.Itoa(n) + " dimensions", Allowed: "up to " + strconv.Itoa(limiter.MaxAlso)})
	}
	for i := range c.Also {
		if also := &c.Also[i]; also.Dimension == "" || also.Value == nil {
			bad = append(bad, &admission.FieldError{Field: "also", Value: strconv.Quote(also.Dimension), Allowed: "the name of a dimension, with a key for its value"})
		}
	}
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("configure grpc limit: %w", err)
	}
	return nil
}
