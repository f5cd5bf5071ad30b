package shown

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Limit is a limit in force.
type Limit struct {
	Tokens admission.Tokens `json:"tokens"`
	PerMs  float64          `json:"per_ms"`
	Burst  admission.Tokens `json:"burst"`
	// Algorithm, Window, Anchor and Zone are as the policy has them of a limit of windows, and empty for a token bucket.
	Algorithm string `json:"algorithm,omitempty"`
	Window    string `json:"window,omitempty"`
	Anchor    string `json:"anchor,omitempty"`
	Zone      string `json:"zone,omitempty"`
}

func limitOf(l *admission.Limit) *Limit {
	v := &Limit{Tokens: l.Tokens, PerMs: Millis(l.Per), Burst: l.Burst}
	if w := l.Window; !w.IsZero() {
		v.Algorithm, v.Window = policy.AlgorithmOf(*l), w.Length()
		if v.Algorithm == policy.FixedWindow {
			v.Anchor, v.Zone = w.Anchor(), w.Zone()
		}
	}
	return v
}

// Words writes what refills, as people do.
func (l Limit) Words() string {
	if l.Window != "" {
		if limit, err := policy.WindowLimit(l.Algorithm, l.Tokens, l.Window, l.Anchor, l.Zone); err == nil {
			return limit.Words()
		}
	}
	return admission.Limit{Tokens: l.Tokens, Per: time.Duration(l.PerMs * float64(time.Millisecond))}.Words()
}

// Tokens are what a bucket holds, with the part of a token that it has.
func Tokens(level buckets.Micro) float64 { return float64(level) / float64(buckets.MicroPerToken) }

// Rule is a place of the policy that decides.
type Rule struct {
	// Of says whose it is, as in "default of tier gold in queue mail".
	Of string `json:"of"`
	// Path is a JSON pointer to it.
	Path string `json:"path"`
}

// LimitConfig is what the policy has for a scope.
type LimitConfig struct {
	Scope admission.Scope `json:"scope"`
	// Own is the limit that the policy has for the scope itself, as it is put; InForce the one that applies there, if any, and Scaled what part of that
	// does for a time.
	Own     json.RawMessage `json:"own,omitempty"`
	InForce *Limit          `json:"in_force,omitempty"`
	Scaled  *Scaled         `json:"scaled,omitempty"`
	// Rule is what decides that, none where nothing in the policy does.
	Rule *Rule `json:"rule,omitempty"`
	// Recorded says that it is the tenant's record that decides, before the policy; then Rule.Path is in that.
	Recorded bool `json:"recorded,omitempty"`
	// Shares is what each of several partitions has of the tokens of the global limit in force.
	Shares []float64 `json:"shares,omitempty"`
	// Reserved is what is kept of the global limit for some classes, if anything is.
	Reserved *LimitReserved `json:"reserved,omitempty"`
}

// Scaled is what part of a limit is in force for a time.
type Scaled struct {
	Part  float64    `json:"part"`
	Until *time.Time `json:"until"`
}

// scaledOf returns what part of a scope's limit is in force, nil for all of it.
func scaledOf(scales []store.Scale, scope admission.Scope) (least *Scaled) {
	var until time.Time
	for _, s := range scales {
		if s.Concerns(scope) && (least == nil || s.Part < least.Part || s.Part == least.Part && s.Until.After(until)) {
			least, until = &Scaled{s.Part, Stamp(s.Until)}, s.Until
		}
	}
	return least
}

// LimitReserved is a part of a limit that is kept for some classes.
type LimitReserved struct {
	Classes []admission.Priority `json:"classes"`
	Percent int                  `json:"percent"`
	// Lend says that others leave that part of the burst, and may have all that comes in beyond it.
	Lend bool `json:"lend,omitempty"`
	// Others is what those of no such class have together.
	Others *Limit `json:"others"`
}

// ReadLimitConfig shows the limit of a scope, by the policy in force, its shares, and what part of it is in force. A bad scope is a *headgate.FieldError.
func ReadLimitConfig(ctx context.Context, s store.Deployment, current policy.Policy, compiled *policy.Compiled, scope admission.Scope) (LimitConfig, error) {
	if tenant, _, _, err := policy.LimitParts(scope); err == nil {
		if err := store.LearnRecord(ctx, s, compiled, tenant); err != nil {
			return LimitConfig{}, err
		}
	}
	v, err := LimitConfigOf(current, compiled, scope)
	if err != nil || v.InForce == nil {
		return v, err
	}
	scales, err := s.Scales(ctx)
	if err != nil {
		return v, err
	}
	if v.Scaled = scaledOf(scales, scope); scope != admission.Global {
		return v, nil
	}
	limits := compiled.LimitsFor("", "", "")
	v.Shares, err = store.SharesOf(ctx, s, &limits[admission.LevelGlobal])
	return v, err
}

func (v *LimitConfig) ofDimension(current *policy.Policy, compiled *policy.Compiled) (err error) {
	if v.Own, err = current.OwnLimit(v.Scope); err != nil {
		return err
	}
	if limit, there := compiled.DimensionLimit(v.Scope); there {
		v.InForce = limitOf(&limit)
	}
	if rule := current.DimensionClause(v.Scope); rule.Path != nil {
		v.Rule = &Rule{rule.Of, rule.Pointer()}
	}
	return nil
}

// LimitConfigOf shows the limit of a scope, by a policy and what Prepare made of it. A bad scope is a *headgate.FieldError.
func LimitConfigOf(current policy.Policy, compiled *policy.Compiled, scope admission.Scope) (LimitConfig, error) {
	v := LimitConfig{Scope: scope}
	if scope.OfDimension() {
		return v, v.ofDimension(&current, compiled)
	}
	tenant, queue, class, err := policy.LimitParts(scope)
	if err != nil {
		return v, err
	}
	if v.Own, err = current.OwnLimit(scope); err != nil {
		return v, err
	}
	if rule := current.WithRecord(tenant, compiled.RecordOf(tenant)).LimitClause(scope.Level(), tenant, queue, class); rule.Path != nil {
		v.Rule = &Rule{rule.Of, rule.Pointer()}
	}
	if own := compiled.RecordOf(tenant); tenant != "" {
		if _, said := own.LimitAt(scope.Level(), queue, class); said {
			v.Recorded, v.Rule = true, &Rule{"record of tenant " + tenant, policy.Clause{Path: own.Path(scope.Level(), queue, class)}.Pointer()}
		}
	}
	if limit := compiled.LimitsFor(tenant, queue, class)[scope.Level()]; !limit.Disabled {
		v.InForce = limitOf(&limit)
		if others, kept := limit.Others(); kept {
			reserved := compiled.GlobalReserved()
			v.Reserved = &LimitReserved{reserved.Classes, reserved.Percent, reserved.Lend, limitOf(&others)}
		}
	}
	return v, nil
}
