package bank

import (
	"cmp"
	"fmt"
	"math"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/memory/internal/times"
	"github.com/headgate/headgate/store"
)

// mostHolders is how many limiters may hold tokens of a scope.
const mostHolders = 128

// lent is what a limiter holds of a scope, until the buckets' time ends.
type lent struct {
	ends   int64
	tokens admission.Tokens
}

// Leases are tokens that limiters spend by themselves.
type Leases struct {
	of       map[admission.Scope]map[string]lent
	ends     *times.Times // when those of a scope are forgotten
	limiters *times.Times
	holders  int
}

// NewLeases returns none. holders is how many limiters may hold tokens of a scope, 0 for as many as in Redis.
func NewLeases(holders int) Leases {
	return Leases{of: map[admission.Scope]map[string]lent{}, ends: times.New(), limiters: times.New(), holders: cmp.Or(holders, mostHolders)}
}

// Lines tells all of them, a line each, in no order.
func (l *Leases) Lines() (lines []string) {
	for scope, all := range l.of {
		for member, lease := range all {
			lines = append(lines, fmt.Sprintf("lease of %s by %s %d:%d", scope, member, lease.ends, lease.tokens))
		}
	}
	for name := range l.limiters.Names() {
		lines = append(lines, fmt.Sprintf("limiter %s until %d", name, l.limiters.At(name)))
	}
	return lines
}

// Grant makes one call for the callers of a limiter, out of a charge. Leases that ended before over are forgotten. It returns how many tokens
// were given back, and whether buckets' time goes on with the call.
func (l *Leases) Grant(charge *Charge, over int64, g *store.Grant) (granted store.Granted, refunded int64, changed bool) {
	for _, scope := range l.ends.Passed(over) {
		delete(l.of, admission.Scope(scope))
	}
	v := &granting{Charge: charge, l: l, g: g}
	granted = store.Granted{Members: v.beat(), Verdicts: make([]*admission.Verdict, 0, len(g.Questions)), Leases: make([]store.Leased, len(g.Accounts))}
	if g.Beat != 0 {
		granted.Changed = int64(charge.changed)
	}
	v.Enter(g.Questions)
	for i := range g.Accounts {
		a := &g.Accounts[i]
		if a.Stock {
			continue
		}
		of, ok := v.bucketOf(a)
		if path := v.WayOf(&g.Questions[a.Question]); g.Questions[a.Question].OfDimension() && len(path) > 0 {
			granted.Leases[i].Paid = v.draw(path[0], a.Owed, 1) // One without room owes it to the bucket that is shared.
		} else if ok {
			granted.Leases[i].Paid = v.draw(of, a.Owed, 1)
		}
		if back := v.endLease(Named(of.Scope), a.Back); ok {
			v.giveBack(of, back)
		}
	}
	for i := range g.Questions {
		if q := &g.Questions[i]; q.Cost > 0 {
			path := v.WayOf(q)
			verdict := v.Take(path, q.Cost)
			verdict.Scope = Named(verdict.Scope)
			if g.Left && verdict.Decision == admission.Admitted {
				verdict.Scope, verdict.TokensLeft, verdict.Burst = v.Least(path)
				verdict.Scope = Named(verdict.Scope)
			}
			v.changed = v.changed || verdict.Decision == admission.Admitted // Also where no limit stands on its way.
			granted.Verdicts = append(granted.Verdicts, &verdict)
		}
	}
	for i := range g.Accounts {
		if of, ok := v.bucketOf(&g.Accounts[i]); ok && !g.Accounts[i].Stock {
			granted.Leases[i].Tokens, granted.Leases[i].Holders = v.lease(of, &g.Accounts[i])
		}
	}
	for i := range g.Accounts {
		if of, ok := v.bucketOf(&g.Accounts[i]); ok && g.Accounts[i].Stock {
			granted.Leases[i].Tokens = v.stock(of, &g.Accounts[i])
		}
	}
	v.Commit()
	return granted, v.refunded, v.changed
}

// granting is a Grant under way.
type granting struct {
	*Charge

	l *Leases
	g *store.Grant
	// refunded is how many tokens were given back.
	refunded int64
	// changed says that buckets' time goes on with the call.
	changed bool
}

// beat notes that the limiter lives and returns how many do; below zero if it does not say.
func (v *granting) beat() int {
	live, at := v.l.limiters, int64(v.At)
	switch {
	case v.g.Beat == 0:
		return -1
	case v.g.Beat < 0:
		live.Remove(v.g.Member)
	default:
		live.Put(v.g.Member, at+v.g.Beat.Microseconds())
	}
	live.Passed(at)
	return live.Count(at + 1)
}

// bucketOf returns that of an account; ok says that it has a limit.
func (v *granting) bucketOf(a *store.Account) (of buckets.LevelLimit, ok bool) {
	q := &v.g.Questions[a.Question]
	if q.OfDimension() {
		of.Scope = q.Scope()
		if path := v.WayOf(q); len(path) > 0 && path[0].Scope.Level() == a.Level {
			return path[0], true
		}
		return of, false
	}
	if a.Level == store.LevelOthers {
		others, kept := q.Limits[admission.LevelGlobal].Others()
		if of.Scope = buckets.Others; kept {
			of.Limit = v.LimitAt(buckets.Others, &others)
		}
		return of, kept
	}
	of.Scope = admission.ScopeAt(a.Level, q.Tenant, q.Queue, q.Class)
	if ok = Limited(&q.Limits[a.Level]); ok {
		of.Limit = v.LimitAt(of.Scope, &q.Limits[a.Level])
	}
	return of, ok
}

// draw takes up to so many tokens, at most a part of what there is.
func (v *granting) draw(of buckets.LevelLimit, tokens admission.Tokens, part float64) admission.Tokens {
	if tokens <= 0 || !v.HasRoom(of.Scope) {
		return 0
	}
	level, stamp := v.LevelOf(of)
	drawn := max(0, min(tokens, admission.Tokens(math.Floor(float64(level)*part/1e6))))
	if drawn > 0 {
		v.Put(of, level-buckets.MicroOf(drawn), stamp)
		v.changed = true
	}
	return drawn
}

// giveBack puts tokens into a bucket, unless it was full as the call began.
func (v *granting) giveBack(of buckets.LevelLimit, tokens admission.Tokens) {
	if tokens == 0 || !ofAll(of.Scope) && v.Before(of.Scope).Absent() {
		return
	}
	level, stamp := v.LevelOf(of)
	level = min(level+buckets.MicroOf(tokens), of.Limit.Burst)
	if level == of.Limit.Burst && of.Limit.Window == nil {
		stamp = v.At
	}
	v.Put(of, level, stamp)
	v.changed = true
	v.refunded += int64(tokens)
}

// held returns the leases of a scope that have not ended.
func (v *granting) held(scope admission.Scope) map[string]lent {
	all := v.l.of[scope]
	for member, lease := range all {
		if lease.ends <= int64(v.At) {
			delete(all, member)
		}
	}
	return all
}

// endLease ends a lease of which tokens are given back, and returns how many of them were on it.
func (v *granting) endLease(scope admission.Scope, back admission.Tokens) admission.Tokens {
	if back == 0 {
		return 0
	}
	all := v.held(scope)
	back = min(back, all[v.g.Member].tokens)
	v.setLease(scope, lent{})
	return back
}

// setLease notes what the limiter has on lease, or that it has nothing.
func (v *granting) setLease(scope admission.Scope, lease lent) {
	all := v.l.of[scope]
	switch {
	case lease.tokens > 0 && all == nil:
		all = map[string]lent{}
		v.l.of[scope] = all
		fallthrough
	case lease.tokens > 0:
		all[v.g.Member] = lease
		v.l.ends.Put(string(scope), v.Now+v.g.Lease.Microseconds()+1_000_000)
	case all != nil:
		if delete(all, v.g.Member); len(all) == 0 {
			delete(v.l.of, scope)
			v.l.ends.Remove(string(scope))
		}
	}
}

// lease leases up to what is wanted: each holder may have its part of the cap, all together the cap, or as much less as the limit is scaled.
func (v *granting) lease(of buckets.LevelLimit, a *store.Account) (tokens admission.Tokens, holders int) {
	if a.Want <= 0 {
		return 0, 0
	}
	all := v.held(Named(of.Scope))
	_, mine := all[v.g.Member]
	others := admission.Tokens(0)
	for member, lease := range all {
		if member != v.g.Member {
			others += lease.tokens
			holders++
		}
	}
	if !mine && holders >= v.l.holders {
		return 0, holders
	}
	holders++
	most := scaled(a.Cap, &of.Limit)
	tokens = v.draw(of, min(a.Want, most/admission.Tokens(holders)-a.Held, most-others-a.Held), 0.5)
	v.setLease(Named(of.Scope), lent{int64(v.At) + v.g.Lease.Microseconds(), a.Held + tokens})
	return tokens, holders
}

// stock takes tokens of which nothing is noted: up to the cap, or as much less as the limit is scaled, and none of the lower half of the burst.
func (v *granting) stock(of buckets.LevelLimit, a *store.Account) admission.Tokens {
	level, _ := v.LevelOf(of)
	above := math.Floor((float64(level) - float64(of.Limit.Burst)/2) / 1e6)
	return v.draw(of, min(a.Want, scaled(a.Cap, &of.Limit)-a.Held, admission.Tokens(above)), 1)
}

// scaled is what may be held of a limit that is scaled.
func scaled(most admission.Tokens, limit *buckets.Limit) admission.Tokens {
	if limit.Whole == nil {
		return most
	}
	return admission.Tokens(math.Floor(float64(most) * limit.Whole.Part))
}
