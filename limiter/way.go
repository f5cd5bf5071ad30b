package limiter

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// way is the limited scopes of a route under one version of the policy. It never changes, but for seen and what was decided.
type way struct {
	policy *policy.Compiled
	// asked is the route as it is asked for; route has the name of the class, where asked may have a number.
	asked route
	// scopes are those with a limit, outermost first, in four: all that most checks look at stands together.
	scopes row
	four   [admission.Levels]*scope
	route  route
	// limits are by level; where the leases are strict, the bursts are smaller than the policy's. The global one is that of all
	// partitions, and global the part of the way's own.
	limits policy.Limits
	global admission.Limit
	// others is what those may take together from whom a part of the global limit is kept, in the way's own partition; zero where it is no way of one.
	// Their scope is the last, and never on lease, so each of their checks is Redis' to answer.
	others admission.Limit
	// most is what all holders of each scope may hold on lease, and stock what one may hold else where no other limiter lives.
	most, stock [admission.Levels + 1]admission.Tokens
	// record is the version of the tenant's record that limits come from, zero where the policy has no records.
	record int64
	// maxKeys is store.Question.MaxKeys of the way of a dimension, and counting how its checks are counted: both of four bytes, so that a way is of a size with others.
	maxKeys  int32
	counting atomic.Uint32
	// seen is when a call last asked on this way, a breaker.Instant.
	seen    atomic.Int64
	decided decided
	// pressed is nil where the policy does not have the queue measured.
	pressed *pressed
}

// How checks of the way of a dimension are counted: not at all, unless the policy has limits told of that are nearly used; by its scope; or, where its value has had no room
// for a bucket of its own, as last heard, by that of those which values share.
const (
	uncounted uint32 = iota
	countedAlone
	countedShared
)

// warned reports whether checks of the way of a dimension are counted.
func (w *way) warned() bool { return w.counting.Load() != uncounted }

// pressed is how much a queue is pressed.
type pressed struct {
	// told is what Redis told last, nil for nothing yet, and askAt from when on one call asks again, a breaker.Instant.
	told  atomic.Pointer[admission.Pressure]
	askAt atomic.Int64
}

// pressedLife is how long what Redis told of a queue's pressure is told again.
const pressedLife = time.Second

// asks reports whether the caller is the one to ask Redis how much the queue is pressed.
func (w *way) asks(now breaker.Instant) bool {
	if w.pressed == nil {
		return false
	}
	at := w.pressed.askAt.Load()
	return int64(now) >= at && w.pressed.askAt.CompareAndSwap(at, int64(now.Add(pressedLife)))
}

// pressure is what Redis told last.
func (w *way) pressure() (p admission.Pressure) {
	if w.pressed != nil {
		if told := w.pressed.told.Load(); told != nil {
			p = *told
		}
	}
	return p
}

// outcome is what the process can say of a check by itself.
type outcome uint8

const (
	taken  outcome = iota // of the tokens on lease
	asking                // nothing: Redis knows
	denied                // by a denial
)

// answer is what the process says of a check: taken, with low where a scope is to be filled, or denied at a scope for a while.
type answer struct {
	outcome outcome
	low     bool
	scope   *scope
	denial  *denial
	wait    time.Duration
}

// try takes cost out of every scope's lease, or out of none; at is for putBack. The answer goes to a zero a: a copy of one costs as much as
// a lease.
func (w *way) try(now breaker.Instant, cost admission.Tokens, at *epochs, a *answer) {
	var ok bool
	if a.low, ok = w.scopes.take(now, cost, at); ok {
		return
	}
	w.deniedBy(now, cost, a)
}

// deniedBy says that a check is denied, or that Redis knows.
func (w *way) deniedBy(now breaker.Instant, cost admission.Tokens, a *answer) {
	a.outcome = asking
	for _, s := range w.scopes {
		if s.has(now, cost) {
			continue
		}
		d := s.denial.Load()
		if wait, ok := d.refuses(now, w.policy, cost); ok && (a.outcome != denied || wait > a.wait) {
			a.outcome, a.scope, a.denial, a.wait = denied, s, d, wait
		}
	}
	if a.outcome == denied && a.denial.reason == admission.ReasonLimited && w.costly(cost) {
		*a = answer{outcome: asking} // It would be told to wait for what never comes.
	}
}

// costly reports whether cost is more than a limit on the way ever holds.
func (w *way) costly(cost admission.Tokens) bool {
	for _, s := range w.scopes {
		if cost > w.limit(s.level).Burst {
			return true
		}
	}
	return false
}

// row is scopes that give as much of what is on lease, or nothing: those of a way, the innermost last, or of several.
type row []*scope

// deepest is how many a request may name: a scope for each level, that of the others at the global limit, and one for each dimension.
const deepest = int(admission.Levels) + 1 + MaxAlso

// epochs are those in which tokens were taken, by the scopes of a row.
type epochs [deepest]uint64

// anyLease as the time of a take spends leases that have ended, too.
const anyLease breaker.Instant = math.MinInt64

// has reports whether each scope has as much on lease.
func (r row) has(now breaker.Instant, cost admission.Tokens) bool {
	for _, s := range r {
		if !s.has(now, cost) {
			return false
		}
	}
	return true
}

// take spends cost of every scope's lease that has not ended, or of none; low says that one of them is to be filled. The
// innermost scope comes first: it is the shortest of tokens. The epochs of what was taken go to at.
func (r row) take(now breaker.Instant, cost admission.Tokens, at *epochs) (low, ok bool) {
	for i := len(r) - 1; i >= 0; i-- {
		s := r[i]
		left, epoch, ok := admission.Tokens(0), uint64(0), false
		if !s.ended(now) {
			left, epoch, ok = s.held.take(cost)
		}
		if !ok {
			r.putBack(cost, i+1, at)
			return false, false
		}
		at[i] = epoch
		low = low || int64(left) < s.low.Load()
	}
	return low, true
}

// putBack undoes a take, from a scope inwards. What Redis was told meanwhile that it is gone is lost: too few are admitted for it, never too many.
func (r row) putBack(cost admission.Tokens, from int, at *epochs) {
	for i := from; i < len(r); i++ {
		if s := r[i]; !s.held.putBack(cost, at[i]) {
			s.lent.lost.Add(int64(cost))
		}
	}
}

// free is what stands for the limits that the way's tenant does not have, where it may have a record: as a stock of nothing it is listed under the tenant, and ends
// with an edit. Until Redis has answered on the way again that may have given it some. It is nil where the tenant has any, or there are no records. It has the last of four
// places, which no such way needs.
func (w *way) free() *scope {
	if w.record == 0 || len(w.scopes) >= len(w.four) {
		return nil
	}
	return w.four[len(w.four)-1]
}

// wants reports whether every scope of the way is asked for often enough to hold some of it, where stocks are divided among so many limiters, or
// by zero there are none.
func (w *way) wants(now breaker.Instant, stocks admission.Tokens) bool {
	for i, s := range w.scopes {
		if chunk, _ := s.chunk(now, w.most[i], w.stockOf(i, stocks)); chunk == 0 {
			return false
		}
	}
	return len(w.scopes) > 0
}

// stockOf is what this limiter may have as stock of a scope.
func (w *way) stockOf(i int, stocks admission.Tokens) admission.Tokens {
	if stocks == 0 {
		return 0
	}
	return w.stock[i] / stocks
}

// current reports whether the way's limits are those of a policy, as far as that knows the tenant's record.
func (w *way) current(inForce *policy.Compiled) bool {
	return w.policy == inForce && (w.record == 0 || w.record == inForce.RecordVersion(w.route.tenant))
}

// limit is that of a level in the way's partition.
func (w *way) limit(level admission.Level) *admission.Limit {
	switch level {
	case admission.LevelGlobal:
		return &w.global
	case store.LevelOthers:
		return &w.others
	default:
		return &w.limits[level]
	}
}

// question is what Redis is asked on the way.
func (w *way) question(cost admission.Tokens) store.Question {
	return store.Question{Tenant: w.route.tenant, Queue: w.route.queue, Class: w.route.class, Cost: cost, Limits: w.limits, MaxKeys: int(w.maxKeys), Record: w.record}
}

// verdictOf is what Redis says of a check on the way; what it leaves is told if it was asked for.
func (w *way) verdictOf(verdict *admission.Verdict, tell bool) Verdict {
	v := verdictOf(verdict)
	switch {
	case v.Admitted && !tell:
		return Verdict{Admitted: true}
	case v.Burst != 0:
		limit := w.limit(v.Scope.Level())
		if store.IsKept(verdict) {
			limit = &w.others
		}
		v.Rate, v.Window = limit.Rate(), limit.Window
	}
	return v
}

// remaining tells what is on lease at the scope with the smallest burst, the outermost of equals: which one has least on lease says
// nothing of the buckets, since chunks are of a size.
func (w *way) remaining(v *Verdict) {
	var smallest *scope
	var limit *admission.Limit
	for _, s := range w.scopes {
		if of := w.limit(s.level); smallest == nil || of.Burst < limit.Burst {
			smallest, limit = s, of
		}
	}
	if smallest != nil {
		v.Scope, v.TokensLeft, v.Burst, v.Rate = smallest.name, smallest.held.tokens(), limit.Burst, limit.Rate()
	}
}

// deny remembers a refusal of cost at the scope that refused.
func (w *way) deny(landed breaker.Instant, cost admission.Tokens, verdict *admission.Verdict) *scope {
	name := verdict.Scope
	if store.IsKept(verdict) {
		name = buckets.Others
	}
	for i, s := range w.scopes {
		if s.name != name {
			continue
		}
		limit := w.limit(s.level)
		rate := float64(limit.Rate()) // A token a second is a micro-token a microsecond.
		d := &denial{policy: w.policy, reason: verdict.Reason, rate: limit.Rate(), perMicro: float64(time.Microsecond) / rate, burst: verdict.Burst, most: limit.Burst, at: landed}
		switch {
		case verdict.Reason != admission.ReasonLimited:
		case !limit.Window.IsZero():
			d.window, d.left, d.cost, d.until = limit.Window, buckets.MicroOf(verdict.TokensLeft), cost, landed.Add(verdict.RetryAfter)
		default:
			gained := buckets.Micro(float64(verdict.RetryAfter.Microseconds()) * rate)
			d.left = buckets.MicroOf(cost) - gained
			if told := buckets.Micro(verdict.TokensLeft) * buckets.MicroPerToken; d.left < told { // Less comes in than the limit says: it is scaled.
				d.left, d.perMicro = told, float64(verdict.RetryAfter)/float64(buckets.MicroOf(cost)-told)
			}
			d.pause = landed.Add(s.pause(w.most[i], limit))
		}
		s.denial.Store(d)
		return s
	}
	return nil
}

// refill reports whether the caller is the one to fetch more tokens.
func (w *way) refill() bool {
	mine := false
	for _, s := range w.scopes {
		if int64(s.held.tokens()) < s.low.Load() && s.fetching.CompareAndSwap(false, true) {
			mine = true
		}
	}
	return mine
}

// claim is refill for a caller whom Redis has answered because something was not on lease.
func (w *way) claim(now breaker.Instant, stocks admission.Tokens) bool {
	if !w.wants(now, stocks) {
		return false
	}
	mine := false
	for _, s := range w.scopes {
		if (s.ended(now) || int64(s.held.tokens()) < s.low.Load()) && s.fetching.CompareAndSwap(false, true) {
			mine = true
		}
	}
	return mine
}

func (w *way) fetched() {
	for _, s := range w.scopes {
		s.fetching.Store(false)
	}
}

// idle reports whether the way may be forgotten: with its innermost scope.
func (w *way) idle(now breaker.Instant, after time.Duration) bool {
	n := len(w.scopes)
	if n > 0 && w.scopes[n-1].level == store.LevelOthers { // Which is of all.
		n--
	}
	if n > 0 {
		return w.scopes[n-1].gone.Load()
	}
	return now.Sub(breaker.Instant(w.seen.Load())) > after
}

// isGone reports whether one of its scopes is forgotten.
func (w *way) isGone() bool {
	for _, s := range w.scopes {
		if s.gone.Load() {
			return true
		}
	}
	return false
}
