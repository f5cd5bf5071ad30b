package policy

import (
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
)

// BreakerRules is by which rules the circuit breaker of a downstream goes, whatever workers' configurations say.
type BreakerRules struct {
	// Config has the rules; what it leaves out is the default, not what a worker says.
	breaker.Config
	// CallTimeout ends the ctx of a handler whose job has no time-out of its own, 1 ms to headgate.MaxTimeout; zero leaves it to
	// the worker.
	CallTimeout time.Duration
}

// breakerJSON is a Breaker as it is written: what is not said is left out.
type breakerJSON struct {
	Window           string        `json:"window,omitempty"`
	Buckets          int           `json:"buckets,omitempty"`
	MinCalls         int           `json:"min_calls,omitempty"`
	FailureRate      breaker.Ratio `json:"failure_rate,omitempty"`
	FailureThreshold int           `json:"failure_threshold,omitempty"`
	SlowCallDuration string        `json:"slow_call_duration,omitempty"`
	SlowCallRate     breaker.Ratio `json:"slow_call_rate,omitempty"`
	SuccessThreshold int           `json:"success_threshold,omitempty"`
	MaxProbes        int           `json:"max_probes,omitempty"`
	ProbeTimeout     string        `json:"probe_timeout,omitempty"`
	OpenBase         string        `json:"open_base,omitempty"`
	OpenMax          string        `json:"open_max,omitempty"`
	ResetAfter       string        `json:"reset_after,omitempty"`
	CallTimeout      string        `json:"call_timeout,omitempty"`
}

func (b *BreakerRules) wire() *breakerJSON {
	if b == nil {
		return nil
	}
	return &breakerJSON{
		Window: formatBound(b.Window), Buckets: b.Buckets, MinCalls: b.MinCalls, FailureRate: b.FailureRate,
		FailureThreshold: b.FailureThreshold, SlowCallDuration: formatBound(b.SlowCallDuration), SlowCallRate: b.SlowCallRate,
		SuccessThreshold: b.SuccessThreshold, MaxProbes: b.MaxProbes, ProbeTimeout: formatBound(b.ProbeTimeout),
		OpenBase: formatBound(b.OpenBase), OpenMax: formatBound(b.OpenMax), ResetAfter: formatBound(b.ResetAfter),
		CallTimeout: formatBound(b.CallTimeout),
	}
}

// breaker returns what was written, if anything was, and adds what cannot be read to bad.
func (w *breakerJSON) breaker(at string, bad *problems) *BreakerRules {
	if w == nil {
		return nil
	}
	b := &BreakerRules{CallTimeout: bad.parseDuration(at+".call_timeout", w.CallTimeout)}
	b.Config = breaker.Config{
		Window: bad.parseDuration(at+".window", w.Window), Buckets: w.Buckets, MinCalls: w.MinCalls, FailureRate: w.FailureRate,
		FailureThreshold: w.FailureThreshold, SlowCallDuration: bad.parseDuration(at+".slow_call_duration", w.SlowCallDuration),
		SlowCallRate: w.SlowCallRate, SuccessThreshold: w.SuccessThreshold, MaxProbes: w.MaxProbes,
		ProbeTimeout: bad.parseDuration(at+".probe_timeout", w.ProbeTimeout), OpenBase: bad.parseDuration(at+".open_base", w.OpenBase),
		OpenMax: bad.parseDuration(at+".open_max", w.OpenMax), ResetAfter: bad.parseDuration(at+".reset_after", w.ResetAfter),
	}
	return b
}

// breakerFields names the fields of a breaker.Config as they are written.
var breakerFields = map[string]string{
	"Window": "window", "Buckets": "buckets", "MinCalls": "min_calls", "FailureRate": "failure_rate", "FailureThreshold": "failure_threshold",
	"SlowCallDuration": "slow_call_duration", "SlowCallRate": "slow_call_rate", "SuccessThreshold": "success_threshold",
	"MaxProbes": "max_probes", "ProbeTimeout": "probe_timeout", "OpenBase": "open_base", "OpenMax": "open_max", "ResetAfter": "reset_after",
}

func (b *BreakerRules) validate(bad *problems, owner string) {
	if b == nil {
		return
	}
	err := admission.FieldErrors(b.Validate())
	var all []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, one := range all {
		if field, ok := errors.AsType[*admission.FieldError](one); ok {
			bad.field(owner+"."+breakerFields[field.Field], field.Value, field.Allowed)
		}
	}
	if b.Rand != nil {
		bad.field(owner+".rand", "a function", "none: a policy is a document")
	}
	if t := b.CallTimeout; t != 0 && (t < time.Millisecond || t > admission.MaxTimeout) {
		bad.field(owner+".call_timeout", t.String(), "1ms to "+strings.TrimSuffix(admission.MaxTimeout.String(), "0m0s"))
	}
}

// Breaker returns by which rules the breaker of a downstream goes; false where the policy leaves that to workers.
func (c *Compiled) Breaker(downstream string) (BreakerRules, bool) {
	own := c.downstreams[downstream].Breaker
	if own == nil {
		own = c.anyDownstream.Breaker
	}
	if own == nil {
		return BreakerRules{}, false
	}
	return *own, true
}
