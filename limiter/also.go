package limiter

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Dimension is one more way that a request takes, beside the hierarchy: whose it is, where it comes from, what it is for.
type Dimension struct {
	// Name is that of a dimension which the policy declares, such as "user", and Value the request's, such as "123", 1 to policy.MaxDimensionValue
	// bytes: policy.Compiled.Dimension says under which key it is counted.
	Name, Value string
}

// MaxAlso is how many dimensions a request may name.
const MaxAlso = policy.MaxAlso

// beside reports whether the request is one that spread has made of a dimension: Tenant is its owner and Queue its key.
func (r *Request) beside() bool { return strings.HasPrefix(r.Tenant, admission.DimensionMark) }

// spread appends to requests what a request asks, and then what its dimensions do, each a request of its own.
func spread(requests []Request, r *Request, inForce *policy.Compiled) ([]Request, error) {
	if len(r.Also) > MaxAlso {
		return nil, &admission.FieldError{Field: "also", Value: strconv.Itoa(len(r.Also)) + " dimensions", Allowed: "up to " + strconv.Itoa(MaxAlso)}
	}
	if r.beside() {
		return nil, admission.ValidateTenant(r.Tenant)
	}
	own := *r
	own.Also, own.Cost = nil, cmp.Or(own.Cost, 1)
	requests = append(requests, own)
	for i := range r.Also {
		d := &r.Also[i]
		for j := range i {
			if r.Also[j].Name == d.Name {
				return nil, &admission.FieldError{Field: "also", Value: strconv.Quote(d.Name), Allowed: "each dimension once"}
			}
		}
		owner, key, err := inForce.Dimension(d.Name, d.Value, r.Tenant)
		if err != nil {
			return nil, err
		}
		requests = append(requests, Request{Tenant: owner, Queue: key, Cost: own.Cost})
	}
	return requests, nil
}

// spreadAll is spread of several requests, those of dimensions behind all others. It reads the policy anew where a dimension is not declared. Without
// one the error is Redis' own.
func (l *Limiter) spreadAll(ctx context.Context, requests []Request) (all []Request, err error) {
	inForce, err := l.leader().known(ctx)
	if err != nil {
		return nil, err
	}
	if all, err = spreadOver(requests, inForce); err == nil {
		return all, nil
	}
	if fresh := l.leader().redeclared(ctx, inForce); fresh != inForce {
		return spreadOver(requests, fresh)
	}
	return nil, err
}

func spreadOver(requests []Request, inForce *policy.Compiled) (all []Request, err error) {
	var beside []Request
	for i := range requests {
		made, err := spread(nil, &requests[i], inForce)
		if err != nil {
			return nil, err
		}
		all, beside = append(all, made[0]), append(beside, made[1:]...)
	}
	return append(all, beside...), nil
}

// undecided answers requests without Redis where the policy was never read: each, and each of its dimensions behind all others, by Config.Outage.
func (l *Limiter) undecided(ctx context.Context, requests []Request) Together {
	var all, beside []Request
	for i := range requests {
		own := requests[i]
		own.Also, own.Cost = nil, cmp.Or(own.Cost, 1)
		all = append(all, own)
		for j := range requests[i].Also {
			beside = append(beside, Request{Tenant: admission.DimensionMark + requests[i].Also[j].Name, Cost: own.Cost})
		}
	}
	all = append(all, beside...)
	made, _ := l.leader().answersBlind(ctx, make([]*way, len(all)), all, l.clock.now())
	return made
}

// taking is what was taken of some requests, and what puts it back; nil where nothing can.
type taking struct {
	Together

	back func(ctx context.Context)
}

// allOrNone asks requests of which the first `own` are callers', of one partition, and the others are of dimensions, each of its own. Over several
// partitions they are asked one after the other, and where one refuses what the others gave goes back. Redis' tokens go back by their receipt, so they are
// missing for as long as a call takes, and for good, the cost at each way, where a process dies between or the call that takes them back has no answer.
// What is on lease is taken last, when Redis has answered: nobody waits for another partition with tokens in hand that a count, or the lease's end,
// would take with them. No bucket ever admits more.
func (l *Limiter) allOrNone(ctx context.Context, requests []Request, own int) (Together, error) {
	if l.parts == nil {
		made, err := l.together(ctx, requests, group{own: own, last: true})
		return made.Together, err
	}
	home, shares, err := l.sharesOf(requests, own)
	if err != nil {
		return Together{}, err
	}
	made := togetherOf(Leased, make([]*way, len(requests)), requests)
	made.Admitted = true
	var backs []func(context.Context)
	for i := range shares {
		s := &shares[i]
		got, err := s.part.together(ctx, s.requests, group{own: s.own, last: i == len(shares)-1, part: true})
		if err == nil {
			made.join(&got.Together, s.of)
		}
		if err != nil || !got.Admitted {
			undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.Timeout)
			for _, back := range slices.Backward(backs) {
				back(undoing)
			}
			cancel()
			if err != nil {
				return made, err
			}
			break
		}
		if got.back != nil {
			backs = append(backs, got.back)
		}
	}
	if made.Source != Blind { // Else those who answered have counted.
		home.countTogether(ctx, &made, home.ways.findAll(requests[:own]), group{own: own})
		for i := range shares {
			shares[i].noteValues(ctx, &made)
		}
	}
	return made, nil
}

// share is what one partition is asked of some requests: those of the numbers in `of`.
type share struct {
	part     *Limiter
	requests []Request
	own      int
	of       []int
	standing standing
}

// one is what each of the requests counts.
func (t *Together) one() uint64 {
	if t.Admitted {
		return oneAdmitted
	}
	return oneRefused
}

// noteValues counts those of dimensions in the partition that has them.
func (s *share) noteValues(ctx context.Context, made *Together) {
	for k := s.own; k < len(s.requests); k++ {
		if w := s.part.ways.find(&s.requests[k]); w != nil && w.warned() {
			s.part.note(ctx, w, made.one(), made.Questions[s.of[k]].Cost)
		}
	}
}

// noteAll counts a check that all of its ways have decided by themselves.
func (l *Limiter) noteAll(ctx context.Context, ways []*way, one uint64, cost admission.Tokens) {
	if !l.config.Minutes {
		return
	}
	l.note(ctx, ways[0], one, cost)
	for _, w := range ways[1:] {
		if w.warned() {
			l.note(ctx, w, one, cost)
		}
	}
}

// sharesOf divides requests among partitions, in the order in which they are to be asked: one that is known to refuse, those of which Redis knows, and
// those that have all on lease. home is the partition of callers' own.
func (l *Limiter) sharesOf(requests []Request, own int) (home *Limiter, shares []share, err error) {
	place, err := l.partOf(requests[:own], requests[own:])
	if err != nil {
		return nil, nil, err
	}
	shares = make([]share, len(l.parts))
	for i := range requests {
		at := place
		if requests[i].beside() {
			at = l.store.PartitionOf(requests[i].Tenant + ":" + requests[i].Queue)
		}
		s := &shares[at]
		if s.requests, s.of = append(s.requests, requests[i]), append(s.of, i); i < own {
			s.own++
		}
	}
	for at := range shares {
		s := &shares[at]
		s.part = l.parts[at]
		s.standing, _, _ = s.part.standing(s.part.ways.findAll(s.requests), s.requests, s.part.clock.now())
	}
	shares = slices.DeleteFunc(shares, func(s share) bool { return len(s.requests) == 0 })
	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(a.standing, b.standing) })
	return l.parts[place], shares, nil
}

// join notes what one partition has said of some of the requests. The source is that which knows least.
func (t *Together) join(got *Together, group []int) {
	for i, of := range group {
		t.Questions[of], t.Answers[of] = got.Questions[i], got.Answers[i]
	}
	switch {
	case !got.Admitted, got.Source == Blind, got.Source == Exact && t.Source != Blind:
		t.Source = got.Source
	}
	t.Admitted = t.Admitted && got.Admitted
	if got.Policy != nil {
		t.Policy = got.Policy
	}
}

// takeEach asks the questions one after the other, all or none, and returns what puts the tokens back. It is for what may have to go back: Check gives
// no receipts.
func (l *Limiter) takeEach(ctx context.Context, inForce *policy.Compiled, questions []store.Question) (granted bool, answers []store.Answer, back func(context.Context), err error) {
	answers = make([]store.Answer, len(questions))
	for i := range answers {
		answers[i].Verdict.Decision = admission.Admitted
	}
	var taken []store.Taken
	back = func(ctx context.Context) {
		for _, receipt := range taken {
			if done, err := l.store.Refund(ctx, "a-"+rand.Text(), receipt); err != nil || done != store.Refunded {
				l.config.Logger.Warn().Err(err).Str("scope", string(receipt.Question.Scope())).Int64("tokens", int64(receipt.Question.Cost)).Msg("tokens of a request that was refused elsewhere did not go back")
			}
		}
	}
	for i := range questions {
		verdict, receipt, err := l.part.Take(ctx, inForce.Version(), questions[i])
		if answers[i].Verdict = verdict; err != nil || verdict.Decision != admission.Admitted {
			answers[i].Left[verdict.Scope.Level()] = buckets.MicroOf(verdict.TokensLeft)
			answers[i].Shared = questions[i].OfDimension() && verdict.Scope == admission.Scope(questions[i].Tenant)
			back(ctx)
			return false, answers, nil, err
		}
		for level, left := range receipt.Left {
			answers[i].Left[level] = admission.Micro(left)
		}
		answers[i].Shared = receipt.Shared
		taken = append(taken, receipt)
	}
	return true, answers, back, nil
}

// checkAlso is Check of a request with dimensions that alsoLocally has left: all of its ways have the tokens, or none.
func (l *Limiter) checkAlso(ctx context.Context, r *Request) (Verdict, error) {
	requests, err := l.spreadAll(ctx, []Request{*r})
	switch {
	case err != nil && isAway(err):
		made := l.undecided(ctx, []Request{*r})
		return made.verdict(1), nil
	case err != nil:
		return Verdict{}, err
	}
	made, err := l.allOrNone(ctx, requests, 1)
	if err != nil {
		return Verdict{}, err
	}
	v := made.verdict(len(l.store.Partitions()))
	if v.Admitted && !r.Remaining {
		v = Verdict{Admitted: true, Source: v.Source}
	}
	return v, nil
}

// alsoLocally answers by what is on lease on all ways, or by a denial on one of them, without an allocation. What it cannot answer it leaves.
func (l *Limiter) alsoLocally(ctx context.Context, r *Request, v *Verdict) bool {
	inForce, cost := l.policy.Load(), cmp.Or(r.Cost, 1)
	if inForce == nil || len(r.Also) > MaxAlso || r.beside() || uint64(cost) > uint64(admission.MaxCost) {
		return false
	}
	var room [1 + MaxAlso]*way
	ways := room[:1+len(r.Also)]
	ways[0] = l.ways.at(r.Tenant, r.Queue, r.Class)
	if ways[0] == nil || ways[0].policy != inForce {
		return false
	}
	for i := range r.Also {
		d := &r.Also[i]
		for j := range i {
			if r.Also[j].Name == d.Name {
				return false
			}
		}
		if ways[i+1] = l.ways.beside(inForce, d, r.Tenant); ways[i+1] == nil {
			return false
		}
	}
	return l.takeAll(ctx, ways, cost, r.Remaining, v)
}

// takeAll takes cost on all ways or on none, and reports whether it knows the answer. It takes nothing before all of them have it: tokens that go back
// after a count are lost, so only those do that somebody else was quicker to take.
func (l *Limiter) takeAll(ctx context.Context, ways []*way, cost admission.Tokens, remaining bool, v *Verdict) bool {
	now := l.clock.now()
	var room [deepest]*scope
	n := 0
	for _, w := range ways {
		if !l.spends(w, now) {
			return l.refusesAll(ctx, ways, now, cost, v)
		}
		for _, s := range w.scopes {
			if !s.has(now, cost) {
				return l.refusesAll(ctx, ways, now, cost, v)
			}
			room[n] = s
			n++
		}
	}
	all := row(room[:n])
	var at epochs
	low, ok := all.take(now, cost, &at)
	if !ok {
		return false
	}
	if low || l.beatDue(now) {
		l.fetchAll(ctx, ways, now, low)
	}
	if l.counts.byLease != nil {
		l.counts.byLease.Add(1)
	}
	l.noteAll(ctx, ways, oneAdmitted, cost)
	*v = byLease
	if remaining {
		least(ways, v)
	}
	return true
}

// least tells what is on lease of the limit with the smallest burst on all ways.
func least(ways []*way, v *Verdict) {
	for _, w := range ways {
		var one Verdict
		if w.remaining(&one); one.Burst > 0 && (v.Burst == 0 || one.Burst < v.Burst) {
			one.Admitted, one.Source = true, Leased
			*v = one
		}
	}
}

// refusesAll answers by a denial on one of the ways, the first that has one, and reports whether there is one.
func (l *Limiter) refusesAll(ctx context.Context, ways []*way, now breaker.Instant, cost admission.Tokens, v *Verdict) bool {
	for _, w := range ways {
		var a answer
		if w.deniedBy(now, cost, &a); a.outcome != denied {
			continue
		}
		if l.counts.byDenial != nil {
			l.counts.byDenial.Add(1)
		}
		l.noteAll(ctx, ways, oneRefused, cost)
		a.denial.tell(v, a.scope.told(), a.wait)
		return true
	}
	return false
}

// verdict is the answer to requests that are the ways of one: where it is refused, that of the way which has to wait longest, and else of the
// bucket which holds least.
func (t *Together) verdict(partitions int) Verdict {
	v := Verdict{Admitted: t.Admitted, Source: t.Source}
	for i := range t.Answers {
		q, a := &t.Questions[i], &t.Answers[i]
		if !t.Admitted {
			if of := &a.Verdict; of.Decision != admission.Admitted && (v.Reason == "" || of.RetryAfter > v.RetryAfter) {
				v = verdictOf(of)
				v.Source = t.Source
				v.ofLimit(q, partitions, store.IsKept(of))
			}
			continue
		}
		for level := range q.Limits {
			limit, scope := &q.Limits[level], admission.ScopeAt(admission.Level(level), q.Tenant, q.Queue, q.Class)
			if limit.Disabled || limit.Tokens == 0 || q.OfDimension() && (level == int(admission.LevelGlobal) || (level == int(admission.LevelTenant)) != a.Shared) {
				continue
			}
			if left := a.Left[level].Tokens(); v.Scope == "" || left < v.TokensLeft {
				v.Scope, v.TokensLeft, v.Burst = scope, left, limit.Burst
				v.ofLimit(q, partitions, false)
			}
		}
		if _, kept := q.Limits[admission.LevelGlobal].Others(); kept && !q.OfDimension() && a.Others.Tokens() < v.TokensLeft {
			v.Scope, v.TokensLeft = admission.Global, a.Others.Tokens()
			v.ofLimit(q, partitions, true)
		}
	}
	return v
}

// ofLimit fills in the rate of the verdict's scope; kept says that it is that of those from whom a part of the global limit is kept.
func (v *Verdict) ofLimit(q *store.Question, partitions int, kept bool) {
	if v.Scope == "" || v.Source == Blind {
		return
	}
	limit := q.Limits[v.Scope.Level()]
	if kept {
		limit, _ = limit.Others()
	}
	if v.Scope == admission.Global {
		limit = partOf(limit, admission.Tokens(partitions))
	}
	v.Burst, v.Rate, v.Window = limit.Burst, limit.Rate(), limit.Window
}

// shared counts an answer of a dimension's shared bucket, and tells the log, once in a minute.
func (l *Limiter) shared(q *store.Question) {
	l.counts.shared.Add(1)
	now, due := l.clock.now(), l.counts.sharedAt.Load()
	if int64(now) >= due && l.counts.sharedAt.CompareAndSwap(due, int64(now.Add(idleAfter))) {
		l.config.Logger.Warn().Str("dimension", q.Tenant[len(admission.DimensionMark):]).Int("max_keys", q.MaxKeys).
			Msg("a dimension has more keys than it may: those without a bucket of their own share one")
	}
}
