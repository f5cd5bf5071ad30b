package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// metered asks limits at random.
type metered struct {
	governed

	limits   [admission.Levels]admission.Limit
	receipts []store.Taken
	leased   map[string]map[admission.Scope]admission.Tokens
}

// TestLimitsAreEqual asks for tokens in all ways, and gives some back.
func TestLimitsAreEqual(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			g := &metered{governed: governed{pair: newPair(t), draw: rand.New(rand.NewPCG(seed, 2))}, leased: map[string]map[admission.Scope]admission.Tokens{}}
			g.drawLimits()
			for range 200 {
				g.step()
			}
			g.audited(store.AuditQuery{})
		})
	}
}

func (g *metered) drawLimits() {
	for level := range g.limits {
		burst := admission.Tokens(1 + g.draw.IntN(30))
		g.limits[level] = admission.Limit{Tokens: admission.Tokens(1 + g.draw.IntN(20)), Per: one(&g.governed, time.Second, 7*time.Second, 333*time.Millisecond), Burst: burst}
		switch g.draw.IntN(6) {
		case 0:
			g.limits[level] = admission.Limit{Disabled: true}
		case 1:
			g.limits[level].Tokens = 0
		}
	}
}

func (g *metered) question() store.Question {
	q := store.Question{
		Tenant: one(&g.governed, governedNames...), Queue: one(&g.governed, "mail", "hook"), Class: one(&g.governed, admission.High, admission.Low),
		Cost: admission.Tokens(1 + g.draw.IntN(6)), Limits: g.limits,
	}
	if g.maybe(9) {
		q.Cost = 25
	}
	for level := admission.Levels - 1; level > 0 && g.maybe(3); level-- {
		q.Limits[level] = admission.Limit{Disabled: true}
	}
	return q
}

func (g *metered) questions() (all []store.Question) {
	for range 1 + g.draw.IntN(3) {
		all = append(all, g.question())
	}
	if g.maybe(8) {
		for range 20 {
			all = append(all, g.question())
		}
	}
	return all
}

// at is the version to ask by, now and then another than that in force.
func (g *metered) at() int64 {
	if g.maybe(12) {
		return g.version + 1
	}
	return g.version
}

func (g *metered) step() {
	g.tb.Helper()
	version := g.at()
	switch g.draw.IntN(12) {
	case 0, 1:
		peek, all := g.maybe(4), g.questions()
		g.same(fmt.Sprintf("check peek=%t %+v", peek, all), func(s store.Partition) any {
			granted, answers, err := s.Check(g.ctx, version, peek, all)
			return replied(granted, answers, err)
		})
	case 2:
		q := g.question()
		got := g.same(fmt.Sprintf("take %+v", q), func(s store.Partition) any {
			verdict, receipt, err := s.Take(g.ctx, version, q)
			return replied(verdict, receipt, err)
		}).(reply)
		if receipt := got.Values[1].(store.Taken); receipt.At.Time > 0 {
			g.receipts = append(g.receipts, receipt)
		}
	case 3:
		if len(g.receipts) > 0 {
			i := g.draw.IntN(len(g.receipts))
			g.same("refund", func(s store.Partition) any { return replied(s.Refund(g.ctx, fmt.Sprint("r", i), g.receipts[i])) })
		}
	case 4, 5:
		g.grant(version)
	case 6:
		id, all := one(&g.governed, "a", "a", "b"), g.questions()
		g.same("shadow", func(s store.Partition) any { return replied(s.Shadow(g.ctx, version, id+fmt.Sprint(g.version), all)) })
		g.same("shadow counts", func(s store.Partition) any { return replied(s.ShadowCounts(g.ctx)) })
	case 7:
		q, by := g.question(), store.Intervention{Author: "ada", Reason: "more", Act: one(&g.governed, "", "x")}
		switch g.draw.IntN(4) {
		case 0:
			q.Tenant, q.Queue, q.Class = "", "", ""
		case 1:
			q.Queue, q.Class = "", ""
		case 2:
			q.Class = ""
		}
		g.same("reset", func(s store.Partition) any { return replied(s.ResetBucket(g.ctx, q.Tenant, q.Queue, q.Class, by)) })
	case 8:
		var jobs []store.Candidate
		for range 1 + g.draw.IntN(3) {
			q := g.question()
			g.ids++
			j := mail(q.Tenant, fmt.Sprint("j", g.ids))
			j.Queue, j.Cost, j.Priority = q.Queue, q.Cost, q.Class
			c := candidates(&g.limits, j)
			c[0].Class = map[admission.Priority]int{admission.High: 0, admission.Low: 2}[q.Class]
			jobs = append(jobs, c...)
		}
		g.same("admit", func(s store.Partition) any { return replied(s.Admit(g.ctx, version, jobs)) })
	case 9:
		if g.maybe(3) {
			g.drawLimits()
			g.put(store.PolicyUpdate{LongestFill: time.Hour})
		}
	default:
		by := time.Duration(g.draw.IntN(2_000_000)) * time.Microsecond
		switch g.draw.IntN(20) {
		case 0:
			by = -30 * by
		case 1:
			by *= 40
		}
		g.move(by)
	}
}

func (g *metered) grant(version int64) {
	g.tb.Helper()
	members := []string{"l1", "l2", "l3"}
	member := one(&g.governed, members...)
	if g.leased[member] == nil {
		g.leased[member] = map[admission.Scope]admission.Tokens{}
	}
	grant := store.Grant{
		Version: version, Member: member, Lease: time.Duration(1+g.draw.IntN(4000)) * time.Millisecond,
		Beat: one(&g.governed, 0, -1, time.Second, 10*time.Second), Questions: g.questions(),
	}
	seen := map[admission.Scope]bool{}
	for i := range grant.Questions {
		q := &grant.Questions[i]
		if g.maybe(4) {
			q.Cost = 0
		}
		level := admission.Level(g.draw.IntN(int(admission.Levels)))
		scope := admission.ScopeAt(level, q.Tenant, q.Queue, q.Class)
		if seen[scope] {
			continue
		}
		seen[scope] = true
		a := store.Account{Question: i, Level: level, Cap: admission.Tokens(2 + g.draw.IntN(12))}
		switch had := g.leased[member][scope]; g.draw.IntN(4) {
		case 0:
			a.Back = had
		case 1:
			a.Owed = admission.Tokens(g.draw.IntN(9))
		default:
			a.Held, a.Want = min(had, admission.Tokens(g.draw.IntN(5))), admission.Tokens(g.draw.IntN(8))
			a.Owed = admission.Tokens(g.draw.IntN(2))
		}
		grant.Accounts = append(grant.Accounts, a)
	}
	got := g.same(fmt.Sprintf("grant %+v", grant), func(s store.Partition) any { return replied(s.Grant(g.ctx, &grant)) }).(reply)
	for i, leased := range got.Values[0].(store.Granted).Leases {
		a := grant.Accounts[i]
		q := grant.Questions[a.Question]
		g.leased[member][admission.ScopeAt(a.Level, q.Tenant, q.Queue, q.Class)] = a.Held + leased.Tokens
	}
}

// TestTimeGoesOnWithAGrantThatNothingLimits: the buckets' time, which a clock that is set back later does not take back.
func TestTimeGoesOnWithAGrantThatNothingLimits(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	q := store.Question{Tenant: "acme", Cost: 1, Limits: *free}
	take := func() {
		p.same("take", func(s store.Partition) any {
			verdict, receipt, err := s.Take(p.ctx, 0, q)
			return replied(verdict, receipt, err)
		})
	}
	take()
	p.move(time.Second)
	p.same("grant", func(s store.Partition) any {
		return replied(s.Grant(p.ctx, &store.Grant{Member: "l1", Lease: time.Second, Questions: []store.Question{q}}))
	})
	p.move(-time.Second)
	take()
}

// TestACandidateBeginsWithFullBuckets: also where the first call after another candidate charges nothing.
func TestACandidateBeginsWithFullBuckets(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	q := store.Question{Tenant: "acme", Queue: "mail", Cost: 5, Limits: *free}
	for _, level := range []admission.Level{admission.LevelGlobal, admission.LevelQueue} {
		q.Limits[level] = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 5}
	}
	ask := func(id string, cost admission.Tokens) store.ShadowCounts {
		q.Cost = cost
		p.same("shadow "+id, func(s store.Partition) any { return replied(s.Shadow(p.ctx, 0, id, []store.Question{q, q})) })
		return p.same("counts", func(s store.Partition) any { return replied(s.ShadowCounts(p.ctx)) }).(reply).Values[0].(store.ShadowCounts)
	}
	ask("a", 5)
	ask("b", 6)
	if got := ask("b", 5); got.Allowed != 1 || got.Refused != [admission.Levels]int64{3, 0, 0, 0} {
		t.Errorf("%+v", got)
	}
	p.same("stale", func(s store.Partition) any { return replied(s.Shadow(p.ctx, 7, "b", []store.Question{q})) })
}

// TestATenantHasSoManyBuckets: one more is refused, of those that ask, give and lease.
func TestATenantHasSoManyBuckets(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	limit := admission.Limit{Tokens: 1, Per: time.Hour, Burst: 5}
	limits := [admission.Levels]admission.Limit{{Disabled: true}, limit, limit, limit}
	limits[admission.LevelTenant].Burst = 10_000
	question := func(queue string, class admission.Priority) store.Question {
		return store.Question{Tenant: "acme", Queue: queue, Class: class, Cost: 1, Limits: limits}
	}
	for batch := range 9 {
		var all []store.Question
		for i := range 250 {
			all = append(all, question(fmt.Sprintf("q%d", batch*250+i), admission.High))
			all[i].Limits[admission.LevelTenant].Disabled = true
		}
		p.same(fmt.Sprint("check ", batch), func(s store.Partition) any {
			granted, answers, err := s.Check(p.ctx, 0, false, all)
			return replied(granted, answers, err)
		})
	}
	take := func(q store.Question, reason admission.Reason) {
		t.Helper()
		v := p.same("take", func(s store.Partition) any {
			verdict, receipt, err := s.Take(p.ctx, 0, q)
			return replied(verdict, receipt, err)
		}).(reply).Values[0].(admission.Verdict)
		if v.Reason != reason {
			t.Errorf("%s/%s: %+v", q.Queue, q.Class, v)
		}
	}
	for i := range 300 {
		q := question(fmt.Sprintf("q%d", i), admission.Low)
		if i < 94 { // 8 batches of 500, that of the tenant, and the word of when they end
			take(q, "")
			continue
		}
		if v := p.same("take", func(s store.Partition) any {
			verdict, receipt, err := s.Take(p.ctx, 0, q)
			return replied(verdict, receipt, err)
		}).(reply).Values[0].(admission.Verdict); v.Reason == admission.ReasonBuckets {
			break
		}
	}
	full := question("q9", "other")
	take(full, admission.ReasonBuckets)
	full.Cost = 6
	take(full, admission.ReasonTooCostly)
	j := mail("acme", "j1")
	j.Queue, j.Priority = "q9", "other"
	p.same("admit", func(s store.Partition) any { return replied(s.Admit(p.ctx, 0, candidates(&limits, j))) })
	full.Cost = 0
	p.same("grant", func(s store.Partition) any {
		return replied(s.Grant(p.ctx, &store.Grant{
			Member: "l1", Lease: time.Second, Questions: []store.Question{full}, Accounts: []store.Account{{Level: admission.LevelPriority, Want: 3, Cap: 10}},
		}))
	})
}

// TestBucketsAreForgottenWhenFull looks at when, which Redis tells by its own clock.
func TestBucketsAreForgottenWhenFull(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	q := store.Question{Tenant: "acme", Cost: 3, Limits: *free}
	q.Limits[admission.LevelTenant] = admission.Limit{Tokens: 1, Per: time.Minute, Burst: 4}
	ttl := func(least, most time.Duration) {
		t.Helper()
		for i, s := range []store.Partition{p.redis, p.memory} {
			left, err := s.BucketsTTL(p.ctx, "acme")
			check(t, err)
			if i == 0 && left > 0 {
				left -= time.Until(p.now)
			}
			if left < least-time.Second || left > most+time.Second {
				t.Errorf("partition %d forgets them in %s, want %s to %s", i, left, least, most)
			}
		}
	}
	ttl(0, 0)
	p.each(func(s store.Partition) error {
		_, _, err := s.Take(p.ctx, 0, q)
		return err
	})
	ttl(3*time.Minute, 3*time.Minute+2*time.Second)
	q.Cost = 1
	p.each(func(s store.Partition) error {
		_, _, err := s.Take(p.ctx, 0, q)
		return err
	})
	ttl(4*time.Minute, 4*time.Minute+4*time.Second)
	check(t, p.memory.PutPolicy(p.ctx, store.PolicyUpdate{Version: 1, SameBuckets: true}))
	left, err := p.memory.BucketsTTL(p.ctx, "acme")
	check(t, err)
	check(t, p.memory.PutPolicy(p.ctx, store.PolicyUpdate{Expected: 1, Version: 2, LongestFill: time.Hour}))
	kept, err := p.memory.BucketsTTL(p.ctx, "acme")
	check(t, err)
	if left > 5*time.Minute || kept != time.Hour {
		t.Errorf("%s, then %s", left, kept)
	}
	p.now = p.now.Add(time.Hour)
	if kept, err = p.memory.BucketsTTL(p.ctx, "acme"); kept != 0 || err != nil {
		t.Errorf("%s %v", kept, err)
	}
}

// TestCountsAreEqual counts more scopes than are ranked, minute by minute.
func TestCountsAreEqual(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	draw := rand.New(rand.NewPCG(1, 3))
	for range 40 {
		var counts []store.ScopeCount
		seen := map[int]bool{}
		for range 1 + draw.IntN(1500) {
			n := int(draw.ExpFloat64() * 700)
			if seen[n] {
				continue
			}
			seen[n] = true
			counts = append(counts, store.ScopeCount{
				Scope: admission.Scope(fmt.Sprint("tenant-", n)), Always: n%50 == 0, Allowed: int64(draw.IntN(4)), Refused: int64(draw.IntN(3)),
				Tokens: admission.Tokens(draw.IntN(9)),
			})
		}
		p.same("count", func(s store.Partition) any { return replied(s.Count(p.ctx, counts)) })
		for range 5 {
			scope := admission.Scope(fmt.Sprint("tenant-", draw.IntN(800)))
			p.same("minutes", func(s store.Partition) any { return replied(s.Minutes(p.ctx, scope)) })
		}
		p.same("scopes", func(s store.Partition) any { return replied(s.CountedScopes(p.ctx)) })
		n := 1 + draw.IntN(4)
		p.same("last", func(s store.Partition) any { return replied(s.LastMinutes(p.ctx, n, time.Minute)) })
		p.same("no time", func(s store.Partition) any { return replied(s.LastMinutes(p.ctx, 2, 0)) })
		p.move(time.Duration(draw.IntN(70)) * time.Second)
		if draw.IntN(12) == 0 {
			p.move(time.Duration(draw.IntN(30)) * time.Minute)
		}
	}
	hour := p.same("hour", func(s store.Partition) any { return replied(s.LastHour(p.ctx, time.Minute)) }).(reply).Values[0].([]store.Recorded)
	if len(hour) < 10 || len(hour[0].Scopes) < 100 {
		t.Errorf("%d minutes", len(hour))
	}
}
