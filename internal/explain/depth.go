package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// KindDepth is what bounds how many jobs a tenant may have, in a queue or over all its queues.
const KindDepth = string(store.WaitDepth)

// depthsShown is of how many queues, or tenants, it is told how deep they are.
const depthsShown = 10

// depth is a bound of a tenant's depth in a queue, over all for "", and what is there.
type depth struct {
	tenant, queue string
	bound         policy.Overflow
	rule          *Rule
	has           store.Depth
}

// ofDepth returns the bound of a tenant's depth in a queue, over all for "", and the rule that decides it.
func (r *rules) ofDepth(tenant, queue string) (d depth, err error) {
	d.tenant, d.queue = tenant, queue
	if own := r.compiled.RecordOf(tenant); own.OverflowAt(queue) != (policy.Overflow{}) {
		path := []string{"queues", queue, "overflow"}
		if queue == "" {
			path = path[2:]
		}
		d.rule, err = r.recorded(tenant, own, path)
	} else {
		d.rule, err = r.decided("built in: no bound", r.asOf(tenant).OverflowClause(tenant, queue))
	}
	if err != nil || d.rule.Value == nil {
		return d, err
	}
	if err := json.Unmarshal(d.rule.Value, &d.bound); err != nil {
		return d, fmt.Errorf("read bound of depth: %w", err)
	}
	d.bound.MaxSpilled = cmp.Or(d.bound.MaxSpilled, policy.DefaultMaxSpilled)
	return d, nil
}

// bounded reports whether anything bounds it.
func (d *depth) bounded() bool { return d.bound.MaxJobs > 0 || d.bound.MaxBytes > 0 }

// full reports whether there is no room for one job more, as far as that is known without its size.
func (d *depth) full() bool {
	return d.bound.MaxJobs > 0 && d.has.Jobs >= int64(d.bound.MaxJobs) || d.bound.MaxBytes > 0 && d.has.Bytes >= d.bound.MaxBytes
}

// aside reports whether one job more is kept aside, refuses whether it is refused.
func (d *depth) aside() bool {
	return d.bound.Policy == policy.Spillover && (d.full() || d.has.Spilled > 0) && !d.refuses()
}

func (d *depth) refuses() bool {
	switch d.bound.Policy {
	case policy.Reject:
		return d.full()
	case policy.Spillover:
		return d.bound.SpillTo == "" && d.has.Spilled >= int64(d.bound.MaxSpilled)
	case policy.DropOldest, policy.NoBound:
	}
	return false
}

// where says in which queue.
func (d *depth) where() string {
	if d.queue == "" {
		return "over all its queues"
	}
	return "in " + d.queue
}

// most says what the bound is.
func (d *depth) most() string {
	var all []string
	if d.bound.MaxJobs > 0 {
		all = append(all, many(d.bound.MaxJobs, "job"))
	}
	if d.bound.MaxBytes > 0 {
		all = append(all, many(d.bound.MaxBytes, "byte"))
	}
	return strings.Join(all, " and ")
}

func many[N int | int64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// then says what becomes of one job more.
func (d *depth) then() string {
	switch d.bound.Policy {
	case policy.DropOldest:
		return "one more takes the place of its oldest that wait, of its class or a lower one"
	case policy.Spillover:
		return fmt.Sprintf("one more is kept aside, up to %d of them", d.bound.MaxSpilled)
	case policy.Reject, policy.NoBound:
	}
	return "one more is refused"
}

// reason tells of it.
func (d *depth) reason() Reason {
	text := fmt.Sprintf("%s may have %s %s and has %d", d.tenant, d.most(), d.where(), d.has.Jobs)
	if d.bound.MaxBytes > 0 {
		text += fmt.Sprintf(" of %d bytes", d.has.Bytes)
	}
	if d.has.Spilled > 0 {
		text += fmt.Sprintf(", and %d kept aside", d.has.Spilled)
	}
	switch then := d.then(); {
	case d.refuses():
		text += ": one more is refused"
	case d.full() || d.aside():
		text += ": " + then
	default:
		text += "; then " + then
	}
	return Reason{
		Kind: KindDepth, Binds: d.refuses() || d.aside(), Text: text, Rule: d.rule,
		Change: fmt.Sprintf("jobs of %s %s that end, or %s", d.tenant, d.where(), d.change()),
	}
}

// change is the command that raises the bound.
func (d *depth) change() string {
	flag := " --max-jobs NUMBER"
	if d.bound.MaxJobs == 0 {
		flag = " --max-bytes NUMBER"
	}
	if d.rule.Of == recordOf(d.tenant) {
		return "headgate record set " + string(admission.ScopeAt(admission.LevelQueue, d.tenant, d.queue, "")) + flag
	}
	path := strings.Split(strings.TrimPrefix(d.rule.Path, "/"), "/")
	for i := range path {
		path[i] = writtenName.Replace(path[i])
	}
	switch {
	case path[0] == "queues":
		return "headgate queue set " + named(path[1]) + flag
	case path[0] == "tiers" && path[2] == "queues":
		return "headgate tier set " + path[1] + " --queue " + named(path[3]) + flag
	case path[0] == "tiers":
		return "headgate tier set " + path[1] + flag
	case path[0] == "overflows":
		return fmt.Sprintf(`headgate policy merge FILE, with {"overflows": {%q: {"max_jobs": NUMBER}}}`, path[1])
	}
	return "a higher bound at " + d.rule.Path + " of the policy"
}

// writtenName undoes escapeName.
var writtenName = strings.NewReplacer("~1", "/", "~0", "~")

// named writes a name of a queue in a command, for shells.
func named(queue string) string {
	if queue == policy.Every {
		return strconv.Quote(queue)
	}
	return queue
}

// depths returns the bounds of a tenant's depth in queues, over all for "", with what is there: those that are bounded.
func (r *rules) depths(ctx context.Context, s store.Deployment, tenant string, queues ...string) ([]depth, error) {
	var all []depth
	var names []string
	for _, queue := range queues {
		d, err := r.ofDepth(tenant, queue)
		if err != nil {
			return nil, err
		}
		if d.bounded() {
			all, names = append(all, d), append(names, queue)
		}
	}
	has, err := s.Depths(ctx, tenant, names)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].has = has[i]
	}
	return all, nil
}

// addDepth tells of the bounds of a tenant's depth in a queue, "" for none, and over all. It returns the one for which a job would be refused, or kept aside;
// nil for none.
func (e *Explanation) addDepth(ctx context.Context, s store.Deployment, in *rules, tenant, queue string) (held *depth, err error) {
	if tenant == "" {
		return nil, nil //nolint:nilnil // Nothing bounds the depth of all.
	}
	queues := []string{""}
	if queue != "" {
		queues = []string{queue, ""}
	}
	all, err := in.depths(ctx, s, tenant, queues...)
	for i := range all {
		e.add(all[i].reason())
		if all[i].refuses() || held == nil && all[i].aside() {
			held = &all[i]
		}
	}
	return held, err
}

// addDepths tells of the bounds of a tenant's depth in queues where it has jobs, the fullest first. It returns those in which a job would be refused.
func (e *Explanation) addDepths(ctx context.Context, s store.Deployment, in *rules, tenant string) (full []string, err error) {
	names, err := s.QueueNames(ctx)
	if err != nil {
		return nil, err
	}
	all, err := in.depths(ctx, s, tenant, names...)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d depth) bool { return d.has == (store.Depth{}) })
	slices.SortStableFunc(all, func(a, b depth) int {
		rank := func(d *depth) int {
			switch {
			case d.refuses():
				return 0
			case d.aside() || d.full():
				return 1
			}
			return 2
		}
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.has.Jobs, a.has.Jobs))
	})
	for i := range all {
		if i < depthsShown {
			e.add(all[i].reason())
		}
		if all[i].refuses() {
			full = append(full, all[i].queue)
		}
	}
	return full, nil
}

// shorten names the first of many.
func shorten(names []string) string {
	if len(names) > depthsShown {
		return fmt.Sprintf("%s and %d more queues", strings.Join(names[:depthsShown], ", "), len(names)-depthsShown)
	}
	return strings.Join(names, ", ")
}

// depthIn tells what bounds the depth of each tenant in a queue, and which of those with the most waiting are at their bounds.
func (r *rules) depthIn(ctx context.Context, s store.Deployment, e *Explanation, queue string) error {
	each, err := r.ofDepth("", queue) // No tenant has an empty name.
	if err != nil {
		return err
	}
	if each.bounded() {
		e.add(Reason{
			Kind: KindDepth, Rule: each.rule, Change: each.change(),
			Text: fmt.Sprintf("a tenant of which the policy says nothing else may have %s there; then %s", each.most(), each.then()),
		})
	}
	most, _, err := s.WaitingTenants(ctx, queue, depthsShown)
	if err != nil {
		return err
	}
	for _, of := range most {
		if err := store.LearnRecord(ctx, s, r.compiled, of.Tenant); err != nil {
			return err
		}
		all, err := r.depths(ctx, s, of.Tenant, queue)
		if err != nil {
			return err
		}
		for i := range all {
			if all[i].full() || all[i].aside() || all[i].refuses() {
				e.add(all[i].reason())
			}
		}
	}
	return nil
}
