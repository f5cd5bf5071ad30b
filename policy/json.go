package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// MaxBytes is the largest JSON text of a policy, in bytes.
const MaxBytes = 4 << 20

// The JSON of a policy. Fields are named once, here; durations are text such as "30s".
type (
	policyJSON struct {
		Version int64      `json:"version"`
		Global  *limitJSON `json:"global,omitempty"`

		GlobalReserved *GlobalReserved `json:"global_reserved,omitempty"`
		Bypass         *Bypass         `json:"bypass,omitempty"`
		rulesJSON
		Queues        map[string]queueJSON      `json:"queues,omitempty"`
		Downstreams   map[string]downstreamJSON `json:"downstreams,omitempty"`
		AnyDownstream downstreamJSON            `json:"any_downstream,omitzero"`
		Adaptive      map[string]adaptiveJSON   `json:"adaptive,omitempty"`
		Shedding      *Shedding                 `json:"shedding,omitempty"`
		Load          *loadJSON                 `json:"load,omitempty"`
		Anomalies     *anomalyJSON              `json:"anomalies,omitempty"`
		Triggers      map[string]triggerJSON    `json:"triggers,omitempty"`
		Semaphores    map[string]semaphoreJSON  `json:"semaphores,omitempty"`
		Dimensions    map[string]dimensionJSON  `json:"dimensions,omitempty"`
		Observe       []admission.Scope         `json:"observe,omitempty"`
		Usage         *usageJSON                `json:"usage,omitempty"`
		Reservations  reservationsJSON          `json:"reservations,omitzero"`
		TenantRecords bool                      `json:"tenant_records,omitempty"`
		Rollout       *rolloutJSON              `json:"rollout,omitempty"`
		DedupWindow   string                    `json:"dedup_window,omitempty"`
		// Schema is where an editor finds the schema of a file: it is not kept.
		Schema string `json:"$schema,omitempty"`
	}
	// rulesJSON is what a policy, and a candidate, say of tenants.
	rulesJSON struct {
		Tiers          map[string]tierJSON           `json:"tiers,omitempty"`
		Tenants        map[string]tenantJSON         `json:"tenants,omitempty"`
		QueueLimits    map[admission.Scope]limitJSON `json:"queue_limits,omitempty"`
		PriorityLimits map[admission.Scope]limitJSON `json:"priority_limits,omitempty"`
		Overflows      map[admission.Scope]Overflow  `json:"overflows,omitempty"`
		MaxRunning     map[admission.Scope]int       `json:"max_running,omitempty"`
	}
	tierJSON struct {
		Limit      *limitJSON               `json:"limit,omitempty"`
		Weights    Weights                  `json:"priority_weights,omitempty"`
		MaxRunning int                      `json:"max_running,omitempty"`
		Overflow   Overflow                 `json:"overflow,omitzero"`
		Queues     map[string]tierQueueJSON `json:"queues,omitempty"`
	}
	eachTenantJSON struct {
		Limit          *limitJSON                       `json:"limit,omitempty"`
		PriorityLimits map[admission.Priority]limitJSON `json:"priority_limits,omitempty"`
		TypeLimits     map[string]limitJSON             `json:"type_limits,omitempty"`
	}
	tierQueueJSON struct {
		eachTenantJSON
		Overflow Overflow `json:"overflow,omitzero"`
	}
	recordQueueJSON struct {
		eachTenantJSON
		MaxRunning int      `json:"max_running,omitempty"`
		Overflow   Overflow `json:"overflow,omitzero"`
	}
	tenantJSON struct {
		Tier       string     `json:"tier,omitempty"`
		Limit      *limitJSON `json:"limit,omitempty"`
		Weights    Weights    `json:"priority_weights,omitempty"`
		MaxRunning int        `json:"max_running,omitempty"`
		Dispatch   *limitJSON `json:"dispatch,omitempty"`

		Queues map[string]tenantQueueJSON `json:"queues,omitempty"`
	}
	tenantQueueJSON struct {
		TypeLimits map[string]limitJSON `json:"type_limits,omitempty"`
	}
	downstreamJSON struct {
		MaxRunning int          `json:"max_running,omitempty"`
		Dispatch   *limitJSON   `json:"dispatch,omitempty"`
		MaxParked  int          `json:"max_parked,omitempty"`
		Breaker    *breakerJSON `json:"breaker,omitempty"`
		RetryAfter string       `json:"max_retry_after,omitempty"`
	}
	queueJSON struct {
		Classes       []admission.Class `json:"classes,omitzero"`
		Horizon       string            `json:"horizon,omitempty"`
		ExpiredPolicy ExpiredPolicy     `json:"expired_policy,omitempty"`
		MaxWait       string            `json:"max_wait,omitempty"`
		DoomedPercent int               `json:"doomed_percent,omitempty"`
		PoisonLimit   int               `json:"poison_limit,omitempty"`
		KeepDead      string            `json:"keep_dead,omitempty"`
		MaxDead       int               `json:"max_dead,omitempty"`
		Overflow      Overflow          `json:"overflow,omitzero"`
		MaxRunning    int               `json:"max_running,omitempty"`
		PerTenant     int               `json:"max_running_per_tenant,omitempty"`
		Reserved      *Reserved         `json:"reserved,omitempty"`
		MostAttempts  int               `json:"most_attempts,omitempty"`
		LeastBackoff  string            `json:"least_backoff,omitempty"`
		Pressure      *pressureJSON     `json:"pressure,omitempty"`
		EachTenant    eachTenantJSON    `json:"each_tenant,omitzero"`
		Reservations  reservationsJSON  `json:"reservations,omitzero"`
	}
)

// Marshal returns the policy as JSON, every default filled in. Equal policies give equal bytes. It reports every
// bad field of a policy that is not valid, so that Unmarshal reads whatever it returns.
func Marshal(p Policy) ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(p.withDefaults().wire())
	if err != nil {
		return nil, fmt.Errorf("encode policy: %w", err)
	}
	if err := checkSize(text); err != nil {
		return nil, err
	}
	return text, nil
}

// Unmarshal reads a policy in JSON, fills in every default and validates it. A limit is written as
// {"tokens":200,"per":"1s","burst":50}, or {"rate_per_second":200,"burst_capacity":50}, with "enabled":false to
// say that there is none; an absent burst is what comes in a second, an absent "global" no limit. Unknown and repeated names, anything after the
// policy and texts above MaxBytes are refused. Every error matches headgate.ErrInvalid.
func Unmarshal(text []byte) (Policy, error) {
	if err := checkSize(text); err != nil {
		return Policy{}, err
	}
	if err := checkNames(text); err != nil {
		return Policy{}, err
	}
	var wire *policyJSON
	if err := json.Unmarshal(text, &wire); err != nil {
		return Policy{}, decodeError(err)
	}
	if wire == nil {
		return Policy{}, decodeError(errors.New("null is no policy"))
	}
	var bad problems
	p := wire.policy(&bad).withDefaults()
	if err := errors.Join(bad...); err != nil {
		return Policy{}, err
	}
	if err := p.Validate(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// ErrStored matches a stored policy that is of no use. That is no fault of what a caller gave, so it does not match
// headgate.ErrInvalid.
var ErrStored = errors.New("the stored policy is of no use")

// Stored reads what a store holds as its policy; nil, where none was stored, is Default.
func Stored(text []byte) (Policy, error) {
	if text == nil {
		return Default(), nil
	}
	p, err := Unmarshal(text)
	if err != nil {
		return Policy{}, fmt.Errorf("%w: %s", ErrStored, err.Error())
	}
	return p, nil
}

// PrepareStored is Stored and Prepare.
func PrepareStored(text []byte) (*Compiled, error) {
	p, err := Stored(text)
	if err != nil {
		return nil, err
	}
	c, err := p.Prepare()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrStored, err.Error())
	}
	return c, nil
}

// MarshalJSON is Marshal, for policies inside larger documents.
func (p Policy) MarshalJSON() ([]byte, error) { return Marshal(p) }

// UnmarshalJSON is Unmarshal, for policies inside larger documents.
func (p *Policy) UnmarshalJSON(text []byte) error {
	read, err := Unmarshal(text)
	if err != nil {
		return err
	}
	*p = read
	return nil
}

func checkSize(text []byte) error {
	if len(text) <= MaxBytes {
		return nil
	}
	return &admission.FieldError{
		Field: "policy", Value: fmt.Sprintf("%d bytes", len(text)), Allowed: fmt.Sprintf("JSON of up to %d bytes", MaxBytes),
	}
}

// decodeError returns err as an invalid policy.
func decodeError(err error) error {
	if _, named := errors.AsType[*admission.FieldError](err); named {
		return fmt.Errorf("read policy: %w", err)
	}
	return fmt.Errorf("%w policy: %w", admission.ErrInvalid, err)
}

// kindName says what a value of a kind is, and of those that always have one their range. quoted is set where there is a text.
func kindName(kind reflect.Type, quoted bool) string {
	number, unquoted := "a whole number", ""
	if quoted {
		unquoted = ", without quotes"
	}
	switch kind.Kind() {
	case reflect.Int, reflect.Int64:
		switch kind {
		case reflect.TypeFor[admission.Tokens]():
			number += ", 1 to " + strconv.FormatInt(int64(admission.MaxLimitTokens), 10)
		case reflect.TypeFor[admission.Weight]():
			number += ", 1 to " + strconv.FormatInt(int64(admission.MaxWeight), 10)
		}
		return number + unquoted
	case reflect.Float64:
		return "a number" + unquoted
	case reflect.String:
		return "text in quotes"
	case reflect.Bool:
		return "true or false" + unquoted
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// wire returns the policy as it is written.
func (p Policy) wire() policyJSON {
	wire := policyJSON{Version: p.Version, DedupWindow: admission.DurationText(p.DedupWindow)}
	if p.Global != noLimit {
		wire.Global = newLimitJSON(p.Global)
	}
	wire.rulesJSON = p.rules().wire()
	wire.Shedding, wire.Load, wire.Observe, wire.Rollout = p.Shedding, p.Load.wire(), p.Observe, p.Rollout.wire()
	wire.TenantRecords, wire.GlobalReserved, wire.Bypass = p.TenantRecords, p.GlobalReserved, p.Bypass
	wire.Anomalies, wire.Reservations = p.Anomalies.wire(), p.Reservations.wire()
	if p.Usage != nil {
		wire.Usage = &usageJSON{p.Usage.Tenants}
	}
	wire.Queues = convert(p.Queues, func(_ string, queue Queue) queueJSON {
		return queueJSON{
			Classes: queue.Classes, Horizon: admission.DurationText(queue.Horizon), ExpiredPolicy: queue.ExpiredPolicy,
			MaxWait: formatBound(queue.MaxWait), DoomedPercent: queue.DoomedPercent, PoisonLimit: queue.PoisonLimit, KeepDead: formatBound(queue.KeepDead), MaxDead: queue.MaxDead,
			Overflow: queue.Overflow, MaxRunning: queue.MaxRunning, PerTenant: queue.MaxRunningPerTenant, Reserved: queue.Reserved,
			MostAttempts: queue.MostAttempts, LeastBackoff: formatBound(queue.LeastBackoff), Pressure: queue.Pressure.wire(),
			EachTenant: queue.EachTenant.wire(), Reservations: queue.Reservations.wire(),
		}
	})
	downstream := func(_ string, d Downstream) downstreamJSON {
		return downstreamJSON{MaxRunning: d.MaxRunning, Dispatch: optional(d.Dispatch), MaxParked: d.MaxParked, Breaker: d.Breaker.wire(), RetryAfter: formatBound(d.MaxRetryAfter)}
	}
	wire.Downstreams, wire.AnyDownstream = convert(p.Downstreams, downstream), downstream("", p.AnyDownstream)
	wire.Adaptive = convert(p.Adaptive, func(_ string, a Adaptive) adaptiveJSON { return a.wire() })
	wire.Triggers = convert(p.Triggers, func(_ string, t Trigger) triggerJSON { return t.wire() })
	wire.Semaphores = convert(p.Semaphores, func(_ string, s SemaphoreRules) semaphoreJSON { return semaphoreJSON(s) })
	wire.Dimensions = convert(p.Dimensions, func(_ string, d DimensionRules) dimensionJSON { return d.wire() })
	return wire
}

func optional(limit *admission.Limit) *limitJSON {
	if limit == nil {
		return nil
	}
	return newLimitJSON(*limit)
}

// policy returns what was written, and adds what cannot be read to bad.
func (w *policyJSON) policy(bad *problems) Policy {
	p := Policy{Version: w.Version, DedupWindow: bad.parseDuration("dedup_window", w.DedupWindow)}
	if w.Global != nil {
		if p.Global = w.Global.limit("global", bad); p.Global == (admission.Limit{}) {
			bad.field("global.tokens", "0", `1 to 1000000000; for no limit "enabled": false, or leave "global" out`)
		}
	}
	p = p.withRules(w.rules("", bad))
	p.Shedding, p.Load, p.Observe, p.Rollout = w.Shedding, w.Load.load(bad), w.Observe, w.Rollout.rollout(bad)
	p.TenantRecords, p.GlobalReserved, p.Bypass = w.TenantRecords, w.GlobalReserved, w.Bypass
	p.Anomalies, p.Reservations = w.Anomalies.rules(), w.Reservations.rules("reservations", bad)
	if w.Usage != nil {
		p.Usage = &UsageRules{w.Usage.Tenants}
	}
	p.Queues = convert(w.Queues, func(name string, queue queueJSON) Queue {
		at := "queues." + name
		return Queue{
			Classes: queue.Classes, Horizon: bad.parseDuration(at+".horizon", queue.Horizon), ExpiredPolicy: queue.ExpiredPolicy,
			MaxWait: bad.parseDuration(at+".max_wait", queue.MaxWait), DoomedPercent: queue.DoomedPercent, PoisonLimit: queue.PoisonLimit,
			KeepDead: bad.parseDuration(at+".keep_dead", queue.KeepDead), MaxDead: queue.MaxDead,
			Overflow: queue.Overflow, MaxRunning: queue.MaxRunning, MaxRunningPerTenant: queue.PerTenant, Reserved: queue.Reserved,
			MostAttempts: queue.MostAttempts, LeastBackoff: bad.parseDuration(at+".least_backoff", queue.LeastBackoff),
			Pressure: queue.Pressure.pressure(at+".pressure", bad), EachTenant: queue.EachTenant.eachTenant(at+".each_tenant.", bad),
			Reservations: queue.Reservations.rules(at+".reservations", bad),
		}
	})
	downstream := func(at string, d downstreamJSON) Downstream {
		return Downstream{
			MaxRunning: d.MaxRunning, Dispatch: bad.limit(at+".dispatch", d.Dispatch), MaxParked: d.MaxParked, Breaker: d.Breaker.breaker(at+".breaker", bad),
			MaxRetryAfter: bad.parseDuration(at+".max_retry_after", d.RetryAfter),
		}
	}
	p.Downstreams = convert(w.Downstreams, func(name string, d downstreamJSON) Downstream { return downstream("downstreams."+name, d) })
	p.AnyDownstream = downstream("any_downstream", w.AnyDownstream)
	p.Adaptive = convert(w.Adaptive, func(name string, a adaptiveJSON) Adaptive { return a.adaptive("adaptive."+name, bad) })
	p.Triggers = convert(w.Triggers, func(name string, t triggerJSON) Trigger { return t.trigger("triggers."+name, bad) })
	p.Semaphores = convert(w.Semaphores, func(_ string, s semaphoreJSON) SemaphoreRules { return SemaphoreRules(s) })
	p.Dimensions = convert(w.Dimensions, func(name string, d dimensionJSON) DimensionRules { return d.dimension("dimensions."+name, bad) })
	return p
}

// convert maps the values of a map in the order of its keys, so that errors come in that order; nil stays nil.
func convert[K ~string, A, B any](from map[K]A, value func(K, A) B) map[K]B {
	if from == nil {
		return nil
	}
	to := make(map[K]B, len(from))
	for _, key := range sortedKeys(from) {
		to[key] = value(key, from[key])
	}
	return to
}

// formatBound is formatDuration, but for zero, which is no bound and is left out.
func formatBound(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return admission.DurationText(d)
}

// parseDuration reads what formatDuration writes; empty is zero, which means the default.
func (p *problems) parseDuration(name, text string) time.Duration {
	if text == "" {
		return 0
	}
	value, err := time.ParseDuration(text)
	if err != nil || value == 0 {
		p.field(name, fmt.Sprintf("%q", text), `a duration such as "500ms", "30s" or "24h"`)
		return 0
	}
	return value
}
