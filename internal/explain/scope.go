package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func explainTenant(ctx context.Context, store store.Deployment, name string) (Explanation, error) {
	if err := admission.ValidateTenant(name); err != nil {
		return Explanation{}, err
	}
	e, in, err := newScope(ctx, store, admission.Scope(name))
	if err != nil {
		return e, err
	}
	tier, err := in.ofTier(name)
	if err != nil {
		return e, err
	}
	text, change := "its tier is "+in.tier(name), "headgate tenant set "+name+" --tier TIER"
	if own := in.compiled.RecordOf(name).Tier; own != "" {
		change = "headgate record set " + name + " --tier TIER"
		if own != in.tier(name) {
			text += ": its record names " + own + ", which the policy does not have"
		}
	}
	e.add(Reason{Kind: KindTier, Text: text, Rule: tier, Change: change})
	if err := e.addBacklog(ctx, store, name); err != nil {
		return e, err
	}
	full, err := e.addDepths(ctx, store, in, name)
	if err != nil {
		return e, err
	}
	if len(full) > 0 && e.Summary == admitted {
		e.Summary = fmt.Sprintf("a job would be refused in %s: %s has as many jobs there as it may", shorten(full), name)
	}
	if err := in.expiryOfTenant(&e); err != nil {
		return e, err
	}
	return e, e.addGates(ctx, store, in, name)
}

// backlogShown is of how many queues addBacklog tells.
const backlogShown = 10

// addBacklog tells how many jobs of a tenant wait, and where.
func (e *Explanation) addBacklog(ctx context.Context, store store.Deployment, tenant string) error {
	backlogs, err := store.Backlogs(ctx, tenant)
	if err != nil {
		return err
	}
	waiting, others := int64(0), max(0, len(backlogs)-backlogShown)
	texts := make([]string, 0, backlogShown)
	for i, b := range backlogs {
		waiting += b.Waiting + b.Spilled
		if i >= backlogShown {
			continue
		}
		text := fmt.Sprintf("%d in %s", b.Waiting+b.Spilled, b.Queue)
		if b.Partial {
			text = "at least " + text
		}
		if b.Dead > 0 {
			text += fmt.Sprintf(" (and %d dead letters)", b.Dead)
		}
		texts = append(texts, text)
	}
	if len(backlogs) == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of its jobs wait: %s", waiting, strings.Join(texts, ", "))
	if others > 0 {
		text += fmt.Sprintf(", and in %d more queues", others)
	}
	e.add(Reason{Kind: KindBacklog, Text: text, Change: fmt.Sprintf("workers, or headgate job cancel --all --dry-run --tenant %s --queue %s", tenant, backlogs[0].Queue)})
	return nil
}

func explainScope(ctx context.Context, store store.Deployment, name string) (Explanation, error) {
	e, _, err := newScope(ctx, store, admission.Scope(name))
	return e, err
}

// admitted is the summary where nothing stands in the way.
const admitted = "a job of 1 token would be admitted"

// newScope explains whether a scope admits: suspensions, buckets on its way, and bounds of depth.
func newScope(ctx context.Context, store store.Deployment, scope admission.Scope) (Explanation, *rules, error) {
	e := Explanation{Summary: admitted, Reasons: []Reason{}}
	tenant, queue, _, err := scope.Parts()
	if err != nil {
		return e, nil, err
	}
	suspensions, err := store.Suspensions(ctx)
	if err != nil {
		return e, nil, err
	}
	for _, s := range suspensions {
		if concerns(s.Name, tenant, queue) {
			within := cmp.Or(queue, queueOf(s.Name, tenant))
			e.add(Reason{
				Kind: KindSuspension, Binds: true, Until: s.Until, Text: "enqueueing is suspended for " + s.Name.Words() + by(s.Author) + because(s.Reason),
				Change: unsuspend(s.Name, tenant, within),
			})
		}
	}
	in, verdict, err := e.addBuckets(ctx, store, scope)
	if err != nil {
		return e, nil, err
	}
	e.PolicyVersion = in.policy.Version
	if err := in.adaptive(ctx, store, &e, ofLimits(queue)); err != nil {
		return e, nil, err
	}
	suspended := len(e.Reasons) > 0 && e.Reasons[0].Binds
	held, err := e.addDepth(ctx, store, in, tenant, queue)
	if err != nil {
		return e, nil, err
	}
	switch {
	case verdict.Decision != admission.Admitted:
		e.Summary = fmt.Sprintf("a job of 1 token would be refused by %s", verdict.Scope)
	case suspended:
		e.Summary = "a job would be refused where enqueueing is suspended"
	case held != nil && held.refuses():
		e.Summary = fmt.Sprintf("a job would be refused: %s has as many jobs %s as it may", tenant, held.where())
	case held != nil:
		e.Summary = fmt.Sprintf("a job would be kept aside: %s has as many jobs %s as it may", tenant, held.where())
	}
	return e, in, nil
}

// concerns reports whether what is held back under a name concerns a tenant, or one of its queues.
func concerns(name store.GateName, tenant, queue string) bool {
	switch {
	case tenant == "":
		return false
	case queue == "":
		return name == store.TenantGate(tenant) || strings.HasPrefix(string(name), string(store.TenantQueueGate(tenant, "")))
	}
	return name == store.TenantGate(tenant) || name == store.QueueGate(queue) || name == store.TenantQueueGate(tenant, queue)
}

// unsuspend says how a suspension ends.
func unsuspend(name store.GateName, tenant, queue string) string {
	return "headgate resume --enqueue" + flags(name, tenant, queue)
}

// flags writes what a gate guards as flags, where it guards a queue, a tenant or a tenant in a queue.
func flags(name store.GateName, tenant, queue string) string {
	switch name {
	case store.QueueGate(queue):
		return " --queue " + queue
	case store.TenantGate(tenant):
		return " --tenant " + tenant
	case store.TenantQueueGate(tenant, queue):
		return " --queue " + queue + " --tenant " + tenant
	}
	return ""
}

// higher says how the bound of a gate is raised that a rule decided: by what flag, --max-running or --dispatch.
func higher(name store.GateName, flag string, rule *Rule, job *admission.Job) string {
	var what string
	switch name {
	case store.QueueGate(job.Queue):
		what = "queue set " + job.Queue
	case store.TenantGate(job.Tenant), store.TenantRateGate(job.Tenant):
		what = "tenant set " + job.Tenant
		if rule != nil && rule.Of == recordOf(job.Tenant) {
			what = "record set " + job.Tenant
		}
	case store.TenantQueueGate(job.Tenant, job.Queue):
		if rule != nil && rule.Of == recordOf(job.Tenant) {
			what = "record set " + job.Tenant + ":" + job.Queue
			break
		}
		if own := job.Tenant + ":" + job.Queue; rule != nil && rule.Path == pointer([]string{"max_running", own}) {
			return fmt.Sprintf(`headgate policy merge FILE, with {"max_running": {"%s": NUMBER}}`, own)
		}
		what, flag = "queue set "+job.Queue, flag+"-per-tenant"
	case store.DownstreamGate(job.Downstream), store.DownstreamRateGate(job.Downstream),
		eachAccount(store.DownstreamGate(job.Downstream)), eachAccount(store.DownstreamRateGate(job.Downstream)):
		what = "downstream set " + job.Downstream
		if strings.HasSuffix(what, store.Every) {
			what = "downstream set " + strconv.Quote(job.Downstream) // for shells
		}
	case store.DownstreamGate(job.Service()), store.DownstreamRateGate(job.Service()):
		what = "downstream set " + job.Service()
	default:
		return "a higher bound of " + name.Words()
	}
	return fmt.Sprintf("headgate %s %s NUMBER", what, flag)
}

// eachAccount names the gate of each account that has none of its own.
func eachAccount(of store.GateName) store.GateName { return store.GateName(store.DefaultGate(of)) }

// queueOf is the queue of a gate of a tenant in a queue.
func queueOf(name store.GateName, tenant string) string {
	queue, _ := strings.CutPrefix(string(name), string(store.TenantQueueGate(tenant, "")))
	return queue
}

// addBuckets asks every bucket on the way of a scope for a token and takes none. Where the policy changes meanwhile it asks
// again by the new one.
func (e *Explanation) addBuckets(ctx context.Context, s store.Deployment, scope admission.Scope) (*rules, admission.Verdict, error) {
	for again := false; ; again = true {
		in, err := readRules(ctx, s)
		if err != nil {
			return nil, admission.Verdict{}, err
		}
		tenant, _, _, err := scope.Parts()
		if err != nil {
			return nil, admission.Verdict{}, err
		}
		if err := store.LearnRecord(ctx, s, in.compiled, tenant); err != nil {
			return nil, admission.Verdict{}, err
		}
		q, err := in.question(scope)
		if err != nil {
			return nil, admission.Verdict{}, err
		}
		now, err := s.Time(ctx)
		if err != nil {
			return nil, admission.Verdict{}, err
		}
		scales, err := s.Scales(ctx)
		if err != nil {
			return nil, admission.Verdict{}, err
		}
		_, answers, err := s.Check(ctx, in.policy.Version, true, []store.Question{q})
		if errors.Is(err, store.ErrStale) && !again {
			continue
		}
		if err != nil {
			return nil, admission.Verdict{}, err
		}
		for level := range scope.Level() + 1 {
			reason, err := in.bucket(level, &q, &answers[0], now, scales)
			if err != nil {
				return nil, admission.Verdict{}, err
			}
			if level == admission.LevelGlobal && !q.Limits[level].Disabled {
				shares, err := store.SharesOf(ctx, s, &q.Limits[level])
				if err != nil {
					return nil, admission.Verdict{}, err
				}
				reason.Text += store.SharesWords(shares)
			}
			e.add(reason)
		}
		if err := in.others(e, &q, &answers[0], now, scales); err != nil {
			return nil, admission.Verdict{}, err
		}
		if err := in.bypass(ctx, e, s, &q); err != nil {
			return nil, admission.Verdict{}, err
		}
		e.addScales(scales, scope)
		return in, answers[0].Verdict, nil
	}
}

// addScales tells to what part limits on the way of a scope are scaled.
func (e *Explanation) addScales(scales []store.Scale, scope admission.Scope) {
	for _, s := range scales {
		if s.Concerns(scope) || s.Concerns(admission.Global) {
			e.add(Reason{Kind: KindScale, Text: s.Words(), Until: s.Until, Change: "headgate limit scale " + strings.TrimPrefix(string(s.Target), "t:") + " --off"})
		}
	}
}

// question asks for a token of every bucket on the way of a scope.
func (r *rules) question(scope admission.Scope) (store.Question, error) {
	tenant, queue, class, err := scope.Parts()
	if err != nil {
		return store.Question{}, err
	}
	if _, ofType := class.JobType(); class != "" && !ofType {
		named, ok := r.compiled.ClassNamed(queue, class)
		if !ok {
			return store.Question{}, &admission.FieldError{Field: "scope", Value: strconv.Quote(string(scope)), Allowed: "one whose priority is a class of queue " + queue}
		}
		class = named
	}
	q := store.Question{Tenant: tenant, Queue: queue, Class: class, Cost: 1}
	q.Limits, q.Record = r.compiled.WayFor(tenant, queue, class)
	for level := scope.Level() + 1; level < admission.Levels; level++ {
		q.Limits[level] = admission.Limit{Disabled: true}
	}
	return q, nil
}

// bucket tells of the bucket at a level.
func (r *rules) bucket(level admission.Level, q *store.Question, answer *store.Answer, now time.Time, scales []store.Scale) (Reason, error) {
	scope, limit := admission.ScopeAt(level, q.Tenant, q.Queue, q.Class), q.Limits[level]
	rule, err := r.ofLimit(level, q.Tenant, q.Queue, q.Class)
	if err != nil {
		return Reason{}, err
	}
	set := "headgate limit set "
	if rule.Of == recordOf(q.Tenant) {
		set = "headgate record set "
	}
	reason := Reason{Kind: KindLimit, Text: string(scope) + " has no limit", Rule: rule, Change: set + string(scope) + " --tokens NUMBER --per DURATION"}
	if limit.Disabled {
		return reason, nil
	}
	left := answer.Left[level] / buckets.MicroPerToken
	burst, gets := limit.Burst, limit.Words()
	if part := store.PartOf(scales, scope); part < 1 {
		burst = buckets.LimitOf(limit).Scaled(&buckets.Scaling{Part: part}).Burst.Tokens()
		gets += ", scaled to " + store.PartText(part)
	}
	reason.Text = fmt.Sprintf("%s has %d of %d tokens left and gets %s", scope, left, burst, gets)
	if left < 0 {
		reason.Text = fmt.Sprintf("%s is %d tokens of %d below zero, for work that cost more than it had reserved or went beside limits, and gets %s", scope, -left, burst, gets)
	}
	if answer.Left[level] < buckets.MicroPerToken {
		reason.Binds = true
		if answer.Verdict.Scope == scope {
			reason.Until = now.Add(answer.Verdict.RetryAfter)
		}
	}
	return reason, nil
}

// others tells of the bucket of those from whom a part of the global limit is kept, where the question is one of theirs.
func (r *rules) others(to *Explanation, q *store.Question, answer *store.Answer, now time.Time, scales []store.Scale) error {
	others, kept := q.Limits[admission.LevelGlobal].Others()
	if !kept {
		return nil
	}
	rule, err := r.first("", candidate{"global_reserved of the policy", []string{"global_reserved"}})
	if err != nil {
		return err
	}
	burst := buckets.LimitOf(others).Burst
	if part := store.PartOf(scales, admission.Global); part < 1 {
		burst = buckets.LimitOf(others).Scaled(&buckets.Scaling{Part: part}).Burst
	}
	reserved := r.compiled.GlobalReserved()
	reason := Reason{
		Kind: KindReserved, Binds: answer.Others < buckets.MicroPerToken, Rule: rule, Change: "a lower percent in global_reserved of the policy",
		Text: fmt.Sprintf("%d%% of global are kept for %s: others have %d of %d tokens left and get %s", reserved.Percent, policy.ClassWords(reserved.Classes),
			answer.Others.Tokens(), burst.Tokens(), others.Words()),
	}
	if reserved.Lend {
		floor := buckets.MicroOf(q.Limits[admission.LevelGlobal].Burst) - buckets.MicroOf(others.Burst)
		reason.Text += fmt.Sprintf(", while global holds more than %d", floor.Tokens())
		reason.Binds = reason.Binds || answer.Left[admission.LevelGlobal] < floor+buckets.MicroPerToken
	}
	if store.IsKept(&answer.Verdict) {
		reason.Until = now.Add(answer.Verdict.RetryAfter)
	}
	to.add(reason)
	return nil
}

// bypass tells what of a tenant's may go beside the limits of the question's queue and class, where those do.
func (r *rules) bypass(ctx context.Context, to *Explanation, s store.Deployment, q *store.Question) error {
	share, bypasses := q.Limits[admission.LevelGlobal].Share(&q.Limits[admission.LevelTenant])
	if q.Class == "" || !bypasses {
		return nil
	}
	rule, err := r.first("", candidate{"bypass of the policy", []string{"bypass"}})
	if err != nil {
		return err
	}
	own := store.Question{Tenant: q.Tenant, Queue: policy.Every, Cost: 1, Record: q.Record} // The share stands in the place of a queue's limit.
	for level := range own.Limits {
		own.Limits[level].Disabled = true
	}
	own.Limits[admission.LevelQueue] = share
	_, answers, err := s.Check(ctx, r.policy.Version, true, []store.Question{own})
	if errors.Is(err, store.ErrStale) {
		return nil // It is told with what is in force now, or not at all.
	}
	if err != nil {
		return err
	}
	of := r.compiled.Bypass()
	to.add(Reason{
		Kind: KindBypass, Rule: rule, Change: "bypass in the policy",
		Text: fmt.Sprintf("jobs of class %s go beside the limits of queue and class, where %s has used less than %d%% of its limit for that: %d of %d tokens are left, it gets %s, and they may take global to %d below zero",
			q.Class, q.Tenant, of.SharePercent, answers[0].Left[admission.LevelQueue].Tokens(), share.Burst, share.Words(), q.Limits[admission.LevelGlobal].Reserve(buckets.MicroOf(q.Limits[admission.LevelGlobal].Burst)).Tokens()),
	})
	return nil
}

// addGates tells which gates stand before a tenant's jobs.
func (e *Explanation) addGates(ctx context.Context, s store.Deployment, in *rules, tenant string) error {
	gates, err := s.Gates(ctx)
	if err != nil {
		return err
	}
	for _, g := range gates {
		if !concerns(g.Name, tenant, "") && g.Name != store.TenantRateGate(tenant) {
			continue
		}
		reason, err := in.gate(g, tenant, queueOf(g.Name, tenant), "")
		if err != nil {
			return err
		}
		e.add(reason)
	}
	return nil
}

// gate tells of a gate as it stands.
func (r *rules) gate(g store.GateState, tenant, queue, downstream string) (Reason, error) {
	reason := Reason{Binds: g.Shut(), Until: g.Until}
	job := &admission.Job{Tenant: tenant, Queue: queue, Downstream: downstream}
	var err error
	switch {
	case g.Burst > 0:
		reason.Kind, reason.Text = string(store.WaitRate), fmt.Sprintf("%s starts %s, %d at once", g.Name.Words(), admission.TokensPerSecond(g.Rate).Words("job"), g.Burst)
		reason.Rule, err = r.ofGate(g.Name, tenant, queue, downstream)
		reason.Change = higher(g.Name, "--dispatch", reason.Rule, job)
	case g.Limit == 0:
		reason.Kind, reason.Text = string(store.WaitPause), g.Name.Words()+" is paused"+by(g.Author)+because(g.Reason)
		reason.Change = resume(g.Name, job)
	default:
		reason.Kind, reason.Text = string(store.WaitCap), fmt.Sprintf("%s runs %d jobs at a time and has %d", g.Name.Words(), g.Limit, g.Held)
		reason.Rule, err = r.ofGate(g.Name, tenant, queue, downstream)
		reason.Change = higher(g.Name, "--max-running", reason.Rule, job)
		if g.Name.OfEach() {
			reason.Text = fmt.Sprintf("%s runs %d jobs at a time", g.Name.Words(), g.Limit)
		}
	}
	reason.Text += store.SharesWords(g.Shares)
	return reason, err
}
