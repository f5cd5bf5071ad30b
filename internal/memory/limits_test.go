package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

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
