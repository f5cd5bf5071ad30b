package explain

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// explainQueue tells what bounds a queue, how much it is pressed, and what it refuses for it. One that nobody knows is
// store.ErrUnknownQueue.
func explainQueue(ctx context.Context, s store.Deployment, name string) (Explanation, error) {
	e := Explanation{Reasons: []Reason{}}
	q, err := s.Queue(ctx, name)
	if err != nil {
		return e, err
	}
	in, err := readRules(ctx, s)
	if err != nil {
		return e, err
	}
	now, err := s.Time(ctx)
	if err != nil {
		return e, err
	}
	e.PolicyVersion = in.policy.Version
	e.Summary = fmt.Sprintf("%d of its jobs wait, %d run, %d workers serve it", q.Waiting(), q.Running, q.Workers)
	if q.Gate != nil {
		reason, err := in.gate(*q.Gate, "", name, "")
		if err != nil {
			return e, err
		}
		e.add(reason)
	}
	if err := in.eachTenant(&e, name); err != nil {
		return e, err
	}
	if err := in.depthIn(ctx, s, &e, name); err != nil {
		return e, err
	}
	if q.Suspended != nil {
		e.add(Reason{
			Kind: KindSuspension, Binds: true, Text: store.HoldsOf(nil, []store.Suspension{*q.Suspended})[0].Words(), Until: q.Suspended.Until,
			Change: unsuspend(q.Suspended.Name, "", name),
		})
	}
	if err := in.reserved(&e, &q); err != nil {
		return e, err
	}
	if err := in.doomed(&e, &q, now); err != nil {
		return e, err
	}
	if err := in.pressure(&e, &q, now); err != nil {
		return e, err
	}
	if err := in.expiry(&e, name); err != nil {
		return e, err
	}
	return e, in.adaptive(ctx, s, &e, ofLimits(name))
}

// eachTenant tells which limit a tenant has in a queue that nobody configured.
func (r *rules) eachTenant(e *Explanation, queue string) error {
	limit := r.compiled.LimitsFor("", queue, "")[admission.LevelQueue] // No tenant has an empty name.
	if limit.Disabled {
		return nil
	}
	rule, err := r.ofLimit(admission.LevelQueue, "", queue, "")
	e.add(Reason{
		Kind: KindLimit, Rule: rule, Change: "headgate queue set " + queue + " --each-tenant NUMBER",
		Text: fmt.Sprintf("a tenant of which the policy says nothing else gets %s there and holds %d", limit.Words(), limit.Burst),
	})
	return err
}

// reserved tells which slots are kept for some classes, and how many the others have.
func (r *rules) reserved(e *Explanation, q *store.QueueState) error {
	for _, kept := range r.compiled.Reserved() {
		if kept.Queue != q.Name {
			continue
		}
		rule, err := r.first("", candidate{"queue " + q.Name, []string{"queues", q.Name, "reserved"}})
		if err != nil {
			return err
		}
		slots, how := q.Slots, strconv.Itoa(kept.Slots)+" slots are"
		if q.Gate != nil && q.Gate.Limit > 0 {
			slots = min(slots, q.Gate.Limit)
		}
		if kept.Percent > 0 {
			how = strconv.Itoa(kept.Percent) + "% of its slots are"
		}
		var classes []string
		for _, class := range kept.Classes {
			classes = append(classes, string(q.Classes[class].Name))
		}
		text := fmt.Sprintf("%s kept for %s: jobs of others run on %d of %d, and %d do", how, strings.Join(classes, ", "), kept.Left(slots), slots, q.Others)
		if kept.Lend {
			text += "; they are lent while none of those waits"
		}
		e.add(Reason{Kind: KindReserved, Binds: !kept.Lend && q.Others >= kept.Left(slots), Text: text, Rule: rule, Change: "more workers, or fewer slots in reserved of the policy"})
	}
	return nil
}

// doomed tells of which jobs a queue refuses because they would start too late, and how long one that comes now would wait.
func (r *rules) doomed(e *Explanation, q *store.QueueState, now time.Time) error {
	percent := r.compiled.DoomedPercent(q.Name)
	if percent == 0 {
		return nil
	}
	rule, err := r.first("", r.inQueue(q.Name, "doomed_percent"))
	if err != nil {
		return err
	}
	reason := Reason{
		Kind: KindDoomed, Binds: q.Busy && q.Pace > 0, Rule: rule, Change: "fewer jobs, more workers, a later deadline or max_wait",
		Text: fmt.Sprintf("it refuses a job that would wait above %d%% of what its deadline or max_wait lets it", percent),
	}
	if reason.Binds {
		reason.Text += "; all that waits takes " + store.LoadWait(q.Waiting(), q.Pace, q.Last, now).Round(time.Millisecond).String()
	} else {
		reason.Text += "; none now, as no job waits for a free slot at a pace that is known"
	}
	e.add(reason)
	return nil
}

// pressure tells how much a queue is pressed, and what it refuses for it.
func (r *rules) pressure(e *Explanation, q *store.QueueState, now time.Time) error {
	measured := policy.Pressured{}
	for _, p := range r.compiled.Pressured() {
		if p.Queue == q.Name {
			measured = p
		}
	}
	if measured.Queue == "" || q.Pressure == nil {
		return nil
	}
	rule, err := r.first("", candidate{"queue " + q.Name, []string{"queues", q.Name, "pressure"}})
	if err != nil {
		return err
	}
	p := q.Pressure.At(now)
	e.Summary += ", its pressure is " + p.Level.String()
	reason := Reason{Kind: KindPressure, Rule: rule, Change: "fewer jobs, more workers"}
	switch {
	case p.Until.IsZero():
		reason.Text = "its pressure is NONE: it was not measured yet, which a scheduler does"
	case p.Until.Before(now):
		reason.Text = "its pressure is NONE: it was not measured since " + clock(p.Until.Add(-gaugeLives*measured.Interval)) + ", which a scheduler does"
	default:
		reason.Text = fmt.Sprintf("its pressure is %s, score %.3f: %s", p.Level, p.Score, p.Parts)
	}
	e.add(reason)
	shed := r.shed(q, p.Level)
	if len(shed) == 0 {
		return nil
	}
	rule, err = r.first("", candidate{"shedding", []string{"shedding"}})
	e.add(Reason{
		Kind: KindShed, Binds: true, Text: "it refuses " + strings.Join(shed, ", ") + " at that level", Rule: rule,
		Change: "a lower level; other entries at " + p.Level.String() + " in shedding of the policy",
	})
	return err
}

// gaugeLives is for how many intervals a level holds: that of package scheduler.
const gaugeLives = 3

// lastOf says of which tier alone something is, "" where there is but one.
func lastOf(tiers []string) string {
	if len(tiers) < 2 {
		return ""
	}
	return tiers[len(tiers)-1] + " "
}

// shed names the classes of a queue of which jobs are refused at a level, with the tiers where it is not all.
func (r *rules) shed(q *store.QueueState, level admission.PressureLevel) (all []string) {
	for _, class := range q.Classes {
		switch tiers, over, every := r.compiled.ShedAt(q.Name, class.Name, level); {
		case every:
			all = append(all, string(class.Name))
		case len(tiers) > 0:
			text := string(class.Name)
			if tiers[0] != "" {
				text += " of tier " + strings.Join(tiers, ", ")
			}
			if over {
				text += " (" + lastOf(tiers) + "of tenants over their share)"
			}
			all = append(all, text)
		}
	}
	return all
}
