package buckets

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// drawState draws a set as a store may hold it, and the path of one job through it.
func drawState(t *rapid.T) (*Set, []LevelLimit) {
	set := &Set{}
	var path []LevelLimit
	for i := range admission.Levels {
		if rapid.IntRange(0, 3).Draw(t, "left out") == 0 {
			continue
		}
		scope := admission.ScopeAt(admission.Level(i), "acme", "mail", admission.High)
		limit := drawLimit(t, fmt.Sprintf("limit %d", i))
		path = append(path, LevelLimit{Scope: scope, Limit: limit})
		set.Put(scope, drawBucket(t, fmt.Sprintf("stored %d", i), someInstant, limit))
	}
	return set, path
}

// L2: all levels are charged or none, and the answer names the right scope.
func TestARefusalChangesNothingAndNamesTheRightScope(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set, path := drawState(t)
		changed := someInstant - Instant(drawSpan(t, "since change"))
		cost := tokens(rapid.Int64Range(1, 30).Draw(t, "cost"))
		before := maps.Clone(set.stored)

		var tooCostly, longest admission.Verdict
		for _, step := range path {
			alone := set.Peek(someInstant, changed, []LevelLimit{step}, cost)
			if step.Limit.Burst < MicroOf(cost) && tooCostly.Scope == "" {
				tooCostly = admission.Verdict{Reason: admission.ReasonTooCostly, Scope: step.Scope, Burst: step.Limit.Burst.Tokens()}
			}
			if alone.RetryAfter > longest.RetryAfter {
				longest = alone
			}
		}
		want := admission.Verdict{Decision: admission.Admitted}
		if longest.Scope != "" {
			want = longest
		}
		if tooCostly.Scope != "" {
			want = tooCostly
		}

		peeked := set.Peek(someInstant, changed, path, cost)
		if !maps.Equal(before, set.stored) {
			t.Fatal("Peek changed the set")
		}
		got := set.Take(someInstant, changed, path, cost)
		if got != want || peeked != want {
			t.Fatalf("Take = %+v, Peek = %+v, want %+v", got, peeked, want)
		}
		if got.Decision == admission.Refused {
			if !maps.Equal(before, set.stored) {
				t.Fatal("a refusal changed the set")
			}
			return
		}
		for _, step := range path {
			held, stamp := Settle(someInstant, changed, before[step.Scope], step.Limit)
			if now := set.stored[step.Scope]; now != NewBucket(held-MicroOf(cost), stamp, step.Limit) {
				t.Fatalf("scope %s held %d and now stores %+v", step.Scope, held, now)
			}
		}
	})
}

// L2: a job that waits as told passes, if nobody else takes and the clock did not step. One microsecond more is
// allowed for, where two roundings meet.
func TestWaitingAsToldIsEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set, path := drawState(t)
		for scope, stored := range set.stored {
			stored.Stamp = min(stored.Stamp, someInstant)
			set.Put(scope, stored)
		}
		changed := someInstant - Instant(drawSpan(t, "since change"))
		cost := tokens(rapid.Int64Range(1, 30).Draw(t, "cost"))
		refusal := set.Peek(someInstant, changed, path, cost)
		if refusal.Reason != admission.ReasonLimited {
			t.Skip("not a refusal that waiting ends")
		}
		wait := Instant(refusal.RetryAfter / time.Microsecond)
		if wait < 1 {
			t.Fatalf("wait is %s", refusal.RetryAfter)
		}
		if later := set.Peek(someInstant+wait+1, changed, path, cost); later.Err() != nil {
			t.Fatalf("told to wait %d µs and refused again: %+v", wait, later)
		}
		for _, step := range path {
			if stored := set.Bucket(step.Scope); !stored.Absent() && stored != NewBucket(stored.Level, stored.Stamp, step.Limit) {
				return // a bucket written under a lower burst may be full earlier, and then has the raised one at once
			}
		}
		if early := set.Peek(someInstant+wait-2, changed, path, cost); wait > 2 && early.Err() == nil {
			t.Fatalf("told to wait %d µs, admitted 2 µs earlier", wait)
		}
	})
}

// The quotient of what is missing and the rate comes out as 5,173,539 exactly, after which the product falls short.
func TestWaitGrowsByAMicrosecondWhereTheQuotientWasRoundedDown(t *testing.T) {
	t.Parallel()
	limit := LimitOf(admission.Limit{Tokens: 24, Per: 4824 * time.Millisecond, Burst: 30})
	var set Set
	set.Put("acme", NewBucket(261_000, 0, limit))
	path := []LevelLimit{{"acme", limit}}
	const wait = 5_173_540
	if got := set.Peek(0, 0, path, 26).RetryAfter; got != wait*time.Microsecond {
		t.Errorf("wait is %s, want %d µs", got, wait)
	}
	if err := set.Peek(wait, 0, path, 26).Err(); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestWaitIsOneMicrosecondShortWhereTwoRoundingsMeet(t *testing.T) {
	t.Parallel()
	limit := Limit{Rate: 0.00026371308016877635, Burst: MicroOf(1000)}
	var set Set
	set.Put("acme", NewBucket(42_229_888, 0, limit))
	path := []LevelLimit{{"acme", limit}}
	const now, wait = Instant(73_350_612_672), 289_809_652_032
	if got := set.Peek(now, 0, path, 138).RetryAfter; got != wait*time.Microsecond {
		t.Fatalf("wait is %s, want %d µs", got, int64(wait))
	}
	if set.Peek(now+wait, 0, path, 138).Err() == nil {
		t.Error("the wait was exact: this test holds no example any more")
	}
	if err := set.Peek(now+wait+1, 0, path, 138).Err(); err != nil {
		t.Errorf("a microsecond after the wait: %v", err)
	}
}

// A refusal stores nothing, so nothing remembers how long the bucket has been waiting behind its own stamp.
func TestAfterTheClockWentBackABucketStandsStillUntilItIsCharged(t *testing.T) {
	t.Parallel()
	limit := limitOf(1, 10)
	path := []LevelLimit{{"acme", limit}}
	set := &Set{}
	set.Put("acme", NewBucket(MicroOf(1), 3600*second, limit))
	for _, now := range []Instant{0, 2 * second, 100 * second} {
		want := admission.Verdict{
			Reason: admission.ReasonLimited, Scope: "acme", TokensLeft: 1, Burst: 10, RetryAfter: 2 * time.Second,
		}
		if got := set.Take(now, 0, path, 3); got != want {
			t.Errorf("at %d Take = %+v, want %+v", now, got, want)
		}
	}
	if err := set.Take(100*second, 0, path, 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := set.Take(103*second, 0, path, 3).Err(); err != nil {
		t.Errorf("a charge did not bring the stamp back: %v", err)
	}
}
