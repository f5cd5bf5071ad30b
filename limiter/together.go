package limiter

import (
	"context"
	"slices"
	"strconv"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Together is the answer to requests that were asked together: all have their tokens, or none has.
type Together struct {
	Admitted bool
	// Source is who answered: Leased only where every token was on lease.
	Source Source
	// Policy is that of the limits; nil where it was never read.
	Policy *policy.Compiled
	// Questions are the requests with their limits, and Answers what became of each: whether its own buckets have enough, as far as is
	// known where Source is Cached or Blind. Left is what each bucket holds where Source is Exact, and otherwise what this process has on
	// lease, in whole tokens: a lower bound, as the bucket may hold more.
	Questions []store.Question
	Answers   []store.Answer
}

// MaxTogether is how many requests may be asked together.
const MaxTogether = store.MaxBatchJobs

// CheckTogether asks whether all of some requests may pass now: one to MaxTogether of them, of one partition where the deployment has
// several. It differs from Check in that what is not on lease is asked of Redis in one call for these requests alone, which tells what every bucket
// holds; Request.Remaining is of no account. A call that is under way is waited for up to Config.Timeout even if ctx is cancelled. The errors are those of Check, and headgate.ErrOutOfMemory of a Redis that is full.
func (l *Limiter) CheckTogether(ctx context.Context, requests []Request) (Together, error) {
	own, all := len(requests), requests
	if slices.ContainsFunc(requests, func(r Request) bool { return len(r.Also) > 0 || r.beside() }) {
		var err error
		if all, err = l.spreadAll(ctx, requests); err != nil && isAway(err) {
			return l.undecided(ctx, requests), nil
		} else if err != nil {
			return Together{}, err
		}
	}
	if own < 1 || len(all) > MaxTogether {
		return Together{}, &admission.FieldError{Field: "requests", Value: strconv.Itoa(len(all)), Allowed: "1 to " + strconv.Itoa(MaxTogether) + ", their dimensions included"}
	}
	return l.allOrNone(ctx, all, own)
}

// group says how requests are asked in one partition.
type group struct {
	// own are how many of them, the first, are callers' own.
	own int
	// last says that nothing follows that may have what was taken put back, and part that other partitions are asked, too: who does that counts.
	last, part bool
}

// together asks requests in one partition.
func (l *Limiter) together(ctx context.Context, requests []Request, as group) (taking, error) {
	ways := make([]*way, len(requests))
	for i := range requests {
		r := &requests[i]
		if r.Cost == 0 {
			r.Cost = 1
		}
		if ways[i] = l.ways.find(r); ways[i] == nil || ways[i].policy != l.policy.Load() || uint64(r.Cost) > uint64(admission.MaxCost) {
			var err error
			if ways[i], err = l.first(ctx, r.route(), r.Cost); err != nil {
				return taking{}, err
			}
		}
	}
	if made, ok := l.locally(ctx, ways, requests, as); ok {
		return made, nil
	}
	return l.exactly(ctx, ways, requests, as)
}

// Decide is CheckTogether of questions as a store is asked: it fills in the limits of each and the name of its class, and source is who
// answered, the text of a Source. A nil error with a granted of false is a refusal. Those of dimensions (store.Question.OfDimension), as
// policy.Compiled.Dimension names them, stand behind all others.
func (l *Limiter) Decide(ctx context.Context, questions []store.Question) (granted bool, source string, answers []store.Answer, err error) {
	requests, own := make([]Request, len(questions)), 0
	for i := range questions {
		q := &questions[i]
		if requests[i] = (Request{Tenant: q.Tenant, Queue: q.Queue, Class: q.Class, Cost: q.Cost}); !q.OfDimension() {
			own++
		}
	}
	var made Together
	if own == len(questions) {
		made, err = l.CheckTogether(ctx, requests)
	} else {
		made, err = l.allOrNone(ctx, requests, own)
	}
	copy(questions, made.Questions)
	return made.Admitted, made.Source.String(), made.Answers, err
}

// partOf is the partition that knows all tenants of the requests; where they name none, that of the first dimension asked beside them, else the next.
func (l *Limiter) partOf(requests, beside []Request) (int, error) {
	part, named := int(l.turn.Add(1)%uint64(len(l.parts))), false //nolint:gosec // partitions are few
	if len(beside) > 0 {
		part = l.store.PartitionOf(beside[0].Tenant + ":" + beside[0].Queue)
	}
	for i := range requests {
		if requests[i].Tenant == "" {
			continue
		}
		of := l.store.PartitionOf(requests[i].Tenant)
		if named && of != part {
			return 0, &admission.FieldError{Field: "tenant", Value: strconv.Quote(requests[i].Tenant), Allowed: "tenants of one partition in one call"}
		}
		part, named = of, true
	}
	return part, nil
}

// locally answers by what is on lease for all requests, or by a denial of one of them.
func (l *Limiter) locally(ctx context.Context, ways []*way, requests []Request, as group) (made taking, ok bool) {
	if slices.Contains(ways, nil) {
		return made, false
	}
	now := l.clock.now()
	if slices.ContainsFunc(ways, func(w *way) bool { return w.asks(now) }) {
		return made, false
	}
	switch all, a, of := l.standing(ways, requests, now); all {
	case denying:
		return l.deniedTogether(ctx, ways, requests, as, &a, of), true
	case unknown:
		return made, false
	case onHand:
	}
	at, low := make([]epochs, len(ways)), false
	for i, w := range ways {
		lower, ok := w.scopes.take(now, requests[i].Cost, &at[i])
		if low = low || lower; !ok {
			l.putBackAll(ways[:i], requests, at)
			return made, false
		}
	}
	made.Together = togetherOf(Leased, ways, requests)
	made.Admitted = true
	made.back = func(context.Context) { l.putBackAll(ways, requests, at) }
	l.fetchAll(ctx, ways, now, low)
	l.countTogether(ctx, &made.Together, ways, as)
	return made, true
}

// standing is what a process can say of requests by itself, before it takes anything of them.
type standing uint8

const (
	denying standing = iota // One is denied.
	unknown                 // Redis knows.
	onHand                  // All was on lease a moment ago.
)

// standing also returns the denial, and which of the requests it is of.
func (l *Limiter) standing(ways []*way, requests []Request, now breaker.Instant) (all standing, a answer, of int) {
	all = onHand
	for i, w := range ways {
		if w != nil && w.policy == l.policy.Load() && l.spends(w, now) && w.scopes.has(now, requests[i].Cost) {
			continue
		}
		all = unknown
		if w == nil {
			continue
		}
		var a answer
		if w.deniedBy(now, requests[i].Cost, &a); a.outcome == denied {
			return denying, a, i
		}
	}
	return all, a, 0
}

// deniedTogether answers by a denial of one of the requests.
func (l *Limiter) deniedTogether(ctx context.Context, ways []*way, requests []Request, as group, a *answer, of int) (made taking) {
	made.Together = togetherOf(Cached, ways, requests)
	refused := &made.Answers[of]
	refused.Verdict = admission.Verdict{
		Decision: admission.Refused, Reason: a.denial.reason, Scope: a.scope.told(), TokensLeft: a.denial.left.Tokens(), Burst: a.denial.burst, RetryAfter: a.wait,
		Pressure: ways[of].pressure(),
	}
	if a.scope.level == store.LevelOthers {
		refused.Others, refused.Verdict.Detail = a.denial.left, store.KeptDetail("")
	} else {
		refused.Left[a.scope.level] = a.denial.left
	}
	l.countTogether(ctx, &made.Together, ways, as)
	return made
}

func (l *Limiter) putBackAll(ways []*way, requests []Request, at []epochs) {
	for i, w := range ways {
		w.scopes.putBack(requests[i].Cost, 0, &at[i])
	}
}

// togetherOf is an answer in which each request has what it asks for, and what is left is what is on lease. Where the policy was never read
// there are no ways, and no limits are known.
func togetherOf(source Source, ways []*way, requests []Request) Together {
	made := Together{Source: source, Questions: make([]store.Question, len(requests)), Answers: make([]store.Answer, len(requests))}
	for i, w := range ways {
		made.Answers[i].Verdict.Decision = admission.Admitted
		if w == nil {
			q := store.Question{Tenant: requests[i].Tenant, Queue: requests[i].Queue, Class: requests[i].Class, Cost: requests[i].Cost}
			for level := range q.Limits {
				q.Limits[level].Disabled = true
			}
			made.Questions[i] = q
			continue
		}
		made.Policy = w.policy
		if source != Blind {
			made.Answers[i].Verdict.Pressure = w.pressure()
		}
		made.Questions[i] = w.question(requests[i].Cost)
		for _, s := range w.scopes {
			if s.level == store.LevelOthers {
				continue // Nothing of it is on lease.
			}
			made.Answers[i].Left[s.level] = buckets.MicroOf(s.held.tokens())
		}
	}
	return made
}

// exactly asks Redis, or answers without it.
func (l *Limiter) exactly(ctx context.Context, ways []*way, requests []Request, as group) (taking, error) {
	now := l.clock.now()
	if int64(now) < l.shut.Load() {
		return l.takingBlind(ctx, ways, requests, now), nil
	}
	call, change, ok := l.breaker.TryAcquireAt(now)
	l.tell(change)
	if !ok {
		l.notIn(now)
		return l.takingBlind(ctx, ways, requests, now), nil
	}
	limited, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	made, cuts := taking{Together: Together{Source: Exact}}, l.cuts.Load()
	err := l.with(limited, func(inForce *policy.Compiled) (err error) {
		made.Policy, made.Questions = inForce, make([]store.Question, len(requests))
		for i := range requests {
			if made.Questions[i], err = questionOf(inForce, requests[i].route(), requests[i].Cost); err != nil {
				return err
			}
			q := &made.Questions[i]
			from, _, _ := inForce.PressureFor(q.Tenant, q.Queue, q.Class)
			q.Measured = from > 0
		}
		if as.last {
			made.Admitted, made.Answers, err = l.store.Check(limited, inForce.Version(), false, made.Questions)
		} else {
			made.Admitted, made.Answers, made.back, err = l.takeEach(limited, inForce, made.Questions)
		}
		return err
	})
	if ctx.Err() != nil {
		l.tell(call.IgnoreAt(l.clock.now()))
		return taking{}, context.Cause(ctx)
	}
	l.leave(&call, err)
	switch {
	case err == nil:
		l.counts.calls.Add(1)
		return made, l.learn(ctx, &made.Together, requests, as, cuts)
	case isAway(err):
		return l.takingBlind(ctx, ways, requests, l.clock.now()), nil
	}
	return taking{}, err
}

// learn notes what Redis has answered, and fetches tokens on lease where that is worth it.
func (l *Limiter) learn(ctx context.Context, made *Together, requests []Request, as group, cuts uint64) error {
	landed := l.clock.now()
	ways := make([]*way, len(requests))
	for i := range requests {
		w := l.ways.find(&requests[i])
		if w == nil || !w.current(made.Policy) {
			var err error
			if w, err = l.ways.open(landed, requests[i].route(), made.Policy); err != nil {
				return err
			}
		}
		ways[i] = w
		w.seen.Store(int64(landed))
		if w.pressed != nil {
			told := made.Answers[i].Verdict.Pressure
			w.pressed.told.Store(&told)
			w.pressed.askAt.Store(int64(landed.Add(pressedLife)))
		}
		took := admission.Tokens(0)
		if made.Admitted {
			took = requests[i].Cost
		}
		for _, s := range w.scopes {
			s.used(landed, took)
		}
		if made.Answers[i].Shared {
			l.shared(&made.Questions[i])
		}
		if w.warned() {
			w.counting.Store(countedAlone + uint32(index(made.Answers[i].Shared))) //nolint:gosec // 0 or 1
		}
		// What one of several is told counts the tokens of those before it, which none has. Those of dimensions have buckets of their own.
		if v := &made.Answers[i].Verdict; as.own <= 1 && (v.Reason == admission.ReasonLimited || v.Reason == admission.ReasonTooCostly) {
			l.denied(w.deny(landed, requests[i].Cost, v), cuts)
		}
		if w.record == made.Questions[i].Record {
			l.freed(w, landed, cuts)
		}
	}
	l.countTogether(ctx, made, ways, as)
	due := int64(landed) >= l.beatAt.Load() || l.blind.owes()
	for _, w := range ways {
		if claimed := made.Admitted && w.claim(landed, l.stocks(landed)); claimed || due {
			due = false
			l.fetch(ctx, w)
		}
	}
	return nil
}

// countTogether counts what was answered otherwise than blind of callers' own requests, which come first.
func (l *Limiter) countTogether(ctx context.Context, made *Together, ways []*way, as group) {
	if as.part {
		return
	}
	n := uint64(as.own) //nolint:gosec // not below zero
	switch made.Source {
	case Leased:
		if l.counts.byLease != nil {
			l.counts.byLease.Add(n)
		}
	case Cached:
		if l.counts.byDenial != nil {
			l.counts.byDenial.Add(n)
		}
	case Exact, Blind:
		l.counts.exact[index(made.Admitted)].Add(n)
	}
	l.noteTogether(ctx, made, ways)
}

// noteTogether counts the requests in the minutes of their scopes, all of them admitted or all refused.
func (l *Limiter) noteTogether(ctx context.Context, made *Together, ways []*way) {
	one := made.one()
	for i, w := range ways {
		if w != nil && (w.warned() || !made.Questions[i].OfDimension()) {
			l.note(ctx, w, one, made.Questions[i].Cost)
		}
	}
}

func (l *Limiter) takingBlind(ctx context.Context, ways []*way, requests []Request, now breaker.Instant) taking {
	made, back := l.answersBlind(ctx, ways, requests, now)
	return taking{made, back}
}

// answersBlind answers without Redis: each request by what is on lease and the modes of its scopes, and none where one is refused.
func (l *Limiter) answersBlind(ctx context.Context, ways []*way, requests []Request, now breaker.Instant) (made Together, back func(context.Context)) {
	made = togetherOf(Blind, ways, requests)
	made.Admitted = true
	mode := l.config.Outage
	if slices.Contains(ways, nil) { // The policy was never read.
		made.Admitted = l.config.Outage == OutageOpen
		if !made.Admitted {
			made.Answers[0].Verdict = admission.Verdict{Decision: admission.Refused, Reason: admission.ReasonUnavailable}
		}
	} else {
		mode, back = l.blind.answerAll(&made, ways, now, l.members.Load(), l.config.MaxScopes)
		decided := made.Admitted
		for i := range made.Answers {
			decided = decided || made.Answers[i].Verdict.Reason == admission.ReasonLimited
		}
		if decided {
			l.noteTogether(ctx, &made, ways)
		}
	}
	for i := range made.Answers {
		if v := &made.Answers[i].Verdict; v.Reason == admission.ReasonUnavailable {
			v.RetryAfter = max(l.config.Timeout, breaker.Instant(l.shut.Load()).Sub(now))
		}
		if !requests[i].beside() {
			l.counts.answeredBlind(mode, made.Admitted, requests[i].Cost)
		}
	}
	return made, back
}

// answerAll is answer for requests that are asked together. The mode is that of the one that was refused, or of the last.
func (b *blind) answerAll(made *Together, ways []*way, now breaker.Instant, members int64, maxShares int) (mode Outage, back func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var undone []undo
	undoAll := func() {
		for _, u := range slices.Backward(undone) {
			u()
		}
	}
	for i, w := range ways {
		var verdict Verdict
		var back undo
		verdict, mode, back = b.answerLocked(w, made.Questions[i].Cost, now, members, maxShares)
		if verdict.Admitted {
			undone = append(undone, back)
			continue
		}
		made.Admitted = false
		made.Answers[i].Verdict = admission.Verdict{
			Decision: admission.Refused, Reason: verdict.Reason, Scope: verdict.Scope, TokensLeft: verdict.TokensLeft, Burst: verdict.Burst, RetryAfter: verdict.RetryAfter,
		}
		undoAll()
		return mode, nil
	}
	return mode, func(context.Context) {
		b.mu.Lock()
		defer b.mu.Unlock()
		undoAll()
	}
}

// owes reports whether something was admitted blind that Redis has not heard of.
func (b *blind) owes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.debts) > 0
}
