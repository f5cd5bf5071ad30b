package explain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func explainDownstream(ctx context.Context, s store.Deployment, name string) (Explanation, error) {
	e := Explanation{Summary: "its breaker is closed: no worker has called it within a day", Reasons: []Reason{}}
	if err := admission.ValidateDownstream("downstream", name, false); err != nil {
		return e, err
	}
	service, ofAccount := admission.ServiceOf(name)
	in, err := readRules(ctx, s)
	if err != nil {
		return e, err
	}
	e.PolicyVersion = in.policy.Version
	b, err := s.Breaker(ctx, name)
	switch {
	case errors.Is(err, store.ErrNoBreaker):
	case err != nil:
		return e, err
	default:
		e.Summary = fmt.Sprintf("its breaker is %s; %d of its jobs wait", b.State, b.Waiting)
		if ofAccount {
			e.Summary = fmt.Sprintf("the breaker of %s, which all accounts have, is %s; %d jobs of all accounts wait", service, b.State, b.Waiting)
		}
		reason := ofBreaker(&b)
		if b.Forced {
			author, err := forcer(ctx, s, service)
			if err != nil {
				return e, err
			}
			reason.Text += forcedBy(author)
		}
		e.add(reason)
		if b.State == breaker.Closed {
			e.add(pressureOf(&b))
		}
		for i := range b.Errors {
			said := &b.Errors[i]
			e.add(Reason{Kind: KindErrors, Text: fmt.Sprintf("its calls failed %d times until %s: %s", said.Count, clock(said.At), said.Text)})
		}
	}
	gates, err := s.Gates(ctx)
	if err != nil {
		return e, err
	}
	of := name
	if !ofAccount {
		of = service + admission.AccountSign + store.Every // What each account has is said of it, too.
	}
	for _, g := range gatesOf(of, gates) {
		reason, err := in.gate(g, "", "", of)
		if err != nil {
			return e, err
		}
		e.add(reason)
	}
	if err := in.adaptive(ctx, s, &e, func(m *policy.Moving) bool { return !m.Limits && m.Downstream == service }); err != nil {
		return e, err
	}
	parked, err := in.first("", candidate{"downstream " + service, []string{"downstreams", service, "max_parked"}},
		candidate{"default of downstreams", []string{"any_downstream", "max_parked"}})
	if err != nil {
		return e, err
	}
	if parked.Path != "" {
		e.add(Reason{
			Kind: KindParked, Binds: b.State != breaker.Closed && b.Waiting >= int64(in.maxParked(service)), Rule: parked,
			Text: fmt.Sprintf("while its breaker is not closed, %s of its jobs may wait before others are refused", parked.Value), Change: "a higher max_parked",
		})
	}
	return e, nil
}

// gatesOf picks the caps and rates of an account and its service out of gates; where the account has none of its own, that of each.
func gatesOf(account string, gates []store.GateState) (found []store.GateState) {
	service, _ := admission.ServiceOf(account)
	for _, g := range gates {
		kind, of := g.Name.Split()
		if kind != store.KindDownstream && kind != store.KindDownstreamRate {
			continue
		}
		own := store.GateName(string(kind) + ":" + account)
		isOwn := func(other store.GateState) bool { return other.Name == own }
		if of == service || of == account || string(g.Name) == store.DefaultGate(own) && !slices.ContainsFunc(gates, isOwn) {
			found = append(found, g)
		}
	}
	return found
}

// ofLimits are what moves limits of admission: that of all, and of a queue unless it is "".
func ofLimits(queue string) func(m *policy.Moving) bool {
	return func(m *policy.Moving) bool { return m.Limits && (m.Queue == "" || m.Queue == queue) }
}

// adaptive tells what moves limits, those that the policy has moved of some, and what came of that.
func (r *rules) adaptive(ctx context.Context, s store.Deployment, e *Explanation, of func(m *policy.Moving) bool) error {
	signals := shown.SignalsOf(s)
	for _, m := range r.compiled.Moving() {
		if !of(&m) {
			continue
		}
		rule, err := r.first("", candidate{"adaptive " + m.Name, []string{"adaptive", m.Name}})
		if err != nil {
			return err
		}
		all, err := s.Adaptations(ctx)
		if err != nil {
			return err
		}
		for i := range all {
			if a := &all[i]; a.Name == m.Name {
				reason := ofAdaptive(a, rule)
				reason.Text += protected(&m, a)
				signal, err := signals.Read(ctx, &m)
				if err != nil {
					return err
				}
				if signal != nil {
					reason.Text += "; it goes by a signal: " + signal.InWords()
				}
				e.add(reason)
			}
		}
	}
	return nil
}

// protected tells what tiers have that a loop cuts last, and all others.
func protected(m *policy.Moving, a *store.Adaptation) string {
	if len(m.Protect) == 0 {
		return ""
	}
	part := float64(a.Limit) / store.PartWhole
	var text strings.Builder
	fmt.Fprintf(&text, "; of that tiers which it does not protect have %.4g %%", 100*m.InForce("", part))
	for _, tier := range slices.Sorted(maps.Keys(m.Protect)) {
		fmt.Fprintf(&text, ", %s has %.4g %% and at least %d %%", tier, 100*m.InForce(tier, part), m.Protect[tier].Min)
	}
	return text.String()
}

// ofAdaptive tells of a limit that moves by itself.
func ofAdaptive(a *store.Adaptation, rule *Rule) Reason {
	v := shown.AdaptiveOf(a)
	step := v.LastStep()
	reason := Reason{Kind: KindAdaptive, Binds: a.Held >= a.Limit && a.Limit < a.Own, Rule: rule, Change: "time, or headgate adaptive freeze " + a.Name}
	reason.Text = fmt.Sprintf("adaptive %s has %d running at a time in force, of %d to %d where the policy's own max_running is %d", a.Name, a.Limit, a.Least, a.Most, a.Own)
	if a.IsRate() {
		reason.Binds = a.Limit < a.Own
		reason.Text = fmt.Sprintf("adaptive %s has %s dispatched in force, of %s to %s where the policy's own dispatch is %s",
			a.Name, v.InWords(float64(a.InForce())/store.RateUnit), v.InWords(v.Min), v.InWords(v.Max), v.InWords(v.Dispatch))
	}
	if a.IsLimits() {
		reason.Binds = a.Limit < a.Own
		reason.Text = fmt.Sprintf("adaptive %s has %s of %s in force, of %s to %s of what the policy says", a.Name, v.InWords(v.Limit), a.Gate.Words(), v.InWords(v.Min), v.InWords(v.Max))
	}
	switch {
	case a.Override != nil:
		reason.Text += ", set until " + clock(a.Override.Until) + forcedBy(a.Frozen.Author) + because(a.Frozen.Reason) + ", when " + v.InWords(v.Override.Back) + " comes back"
		reason.Change = "headgate adaptive override " + a.Name + " --off"
	case a.Frozen != nil:
		reason.Text += ", frozen since " + clock(a.Frozen.Since) + forcedBy(a.Frozen.Author) + because(a.Frozen.Reason)
		reason.Change = "headgate adaptive thaw " + a.Name
	case a.Changed.IsZero():
		reason.Text += "; " + step
	default:
		reason.Text += "; its last step at " + clock(a.Changed) + " was " + step
	}
	return reason
}

// maxParked is how many jobs of a downstream may wait while it is ill.
func (r *rules) maxParked(downstream string) int {
	all := r.compiled.MaxParked()
	if most, ok := all[downstream]; ok {
		return most
	}
	return all["*"]
}

// pressureOf tells how near a closed breaker is to opening.
func pressureOf(b *store.BreakerState) Reason {
	p, near := b.Pressure()
	return Reason{Kind: KindPressure, Text: fmt.Sprintf("its pressure is %s, score %.3f: failures are %.3f of the rate that opens its breaker, slow calls %.3f, failures in a row %.3f",
		p.Level, p.Score, near.Failures, near.Slow, near.Streak)}
}

// ofBreaker tells of a breaker.
func ofBreaker(b *store.BreakerState) Reason {
	reason := Reason{Kind: string(store.WaitBreaker), Binds: b.Limit != store.Unlimited, Until: b.Until}
	reason.Text = fmt.Sprintf("the breaker is %s since %s, %s", b.State, clock(b.Since), b.Cause)
	if b.Reason != "" && (b.Forced || b.Cause == breaker.CauseReset) {
		reason.Text += because(b.Reason)
	}
	if b.Cause == breaker.CauseNone {
		reason.Text = "the breaker is closed and has never opened"
	}
	switch {
	case b.Forced:
		reason.Change = resetBreaker(b.Downstream)
	case b.State != breaker.Closed:
		reason.Change = "probes close it when the downstream is well again; " + resetBreaker(b.Downstream) + " does so at once"
	case b.Ramp > 0:
		reason.Change = "time: it starts slowly"
	}
	return reason
}
