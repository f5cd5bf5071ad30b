package buckets

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// event is one thing that happened at one scope. Of its fields the kinds that do not apply are zero.
type event struct {
	elapsed  Span  // real time that passed
	admitted Micro // cost of an admission
	changed  *Limit
	stepped  bool // the clock of Redis jumped
	// hidden marks a change of rate behind another one, with no admission of this scope between.
	hidden bool
}

// canal is a path of scopes under load, with what an observer outside saw of each.
type canal struct {
	set          Set
	path         []LevelLimit
	now, changed Instant // by the clock of Redis, which steps
	seen         [admission.Levels][]event
	// unseen says that this scope's rate changed since its last admission.
	unseen [admission.Levels]bool
}

// drawChoice draws one of a few limits far apart, so that runs come back to a limit that was in force before.
func drawChoice(t *rapid.T, label string) Limit {
	if rapid.IntRange(0, 4).Draw(t, label+" any") == 0 {
		return drawLimit(t, label)
	}
	rate := rapid.SampledFrom([]admission.TokensPerSecond{0.01, 1, 100}).Draw(t, label+" rate")
	return limitOf(rate, rapid.SampledFrom([]admission.Tokens{1, 10, 60}).Draw(t, label+" burst"))
}

func newCanal(t *rapid.T) *canal {
	c := &canal{now: someInstant}
	for i := range rapid.SampledFrom([]int{1, 1, 2, admission.Levels}).Draw(t, "levels") {
		limit := drawChoice(t, fmt.Sprintf("limit %d", i))
		c.path = append(c.path, LevelLimit{Scope: admission.ScopeAt(admission.Level(i), "acme", "mail", admission.High), Limit: limit})
		c.seen[i] = []event{{changed: &limit}}
	}
	return c
}

func (c *canal) pass(elapsed Span) {
	c.now += Instant(elapsed)
	for i := range c.path {
		c.seen[i] = append(c.seen[i], event{elapsed: elapsed})
	}
}

func (c *canal) step(by Instant) {
	c.now += by
	for i := range c.path {
		c.seen[i] = append(c.seen[i], event{stepped: true})
	}
}

func (c *canal) change(i int, limit Limit) {
	e := event{changed: &limit}
	if limit.Rate != c.path[i].Limit.Rate {
		e.hidden = c.unseen[i]
		c.unseen[i] = true
	}
	c.path[i].Limit = limit
	c.changed = c.now
	c.seen[i] = append(c.seen[i], e)
}

// drain takes cost until it is refused, or often.
func (c *canal) drain(cost admission.Tokens) {
	for range 10 {
		if c.set.Take(c.now, c.changed, c.path, cost).Err() != nil {
			return
		}
		for i := range c.path {
			c.seen[i] = append(c.seen[i], event{admitted: MicroOf(cost)})
			c.unseen[i] = false
		}
	}
}

// checkBound fails unless law L1 holds in every window that begins and ends with an admission, which implies it
// for every other. In the general case, two documented allowances are added.
func checkBound(t *rapid.T, scope admission.Scope, events []event, general bool) {
	var inForce Limit
	for first := range events {
		if events[first].changed != nil {
			inForce = *events[first].changed
		}
		if events[first].admitted == 0 {
			continue
		}
		limit, largest, refilled, passed := inForce, inForce.Burst, 0.0, 0.0
		var steps, hidden, reraised Micro
		lowered := false
		for _, e := range events[first:] {
			refilled += float64(e.elapsed) * float64(limit.Rate)
			if e.stepped {
				steps++
			}
			if e.hidden {
				hidden++
			}
			if e.changed != nil {
				lowered = lowered || e.changed.Burst < limit.Burst
				if lowered {
					reraised += max(e.changed.Burst-limit.Burst, 0)
				}
				limit = *e.changed
				largest = max(largest, limit.Burst)
			}
			passed += float64(e.admitted)
			bound := float64(largest)*float64(1+steps) + refilled
			if general {
				bound += float64(largest)*float64(hidden) + float64(reraised)
			}
			if slack := 1 + passed*1e-12; passed > bound+slack {
				t.Fatalf("scope %s admitted %.0f micro-tokens in a window bounded by %.0f", scope, passed, bound)
			}
		}
	}
}

// drive performs random operations: takes, time, the changes that change draws, and in half of the runs steps of
// the clock.
func drive(t *rapid.T, c *canal, change func(i int)) {
	stepping := rapid.Bool().Draw(t, "stepping")
	for range rapid.IntRange(20, 60).Draw(t, "operations") {
		switch rapid.IntRange(0, 9).Draw(t, "operation") {
		case 0, 1, 2:
			c.pass(rapid.SampledFrom([]Span{1, 999, 10_000, 500_000, 1_000_000, 12_345_678, 100_000_000}).Draw(t, "elapsed"))
		case 3:
			if !stepping {
				continue
			}
			by := Instant(drawSpan(t, "step"))
			if rapid.Bool().Draw(t, "backward") {
				by = -by
			}
			c.step(by)
		case 4, 5, 6:
			change(rapid.IntRange(0, len(c.path)-1).Draw(t, "changed level"))
		default:
			c.drain(rapid.SampledFrom([]admission.Tokens{1, 2, 10, 30, 60}).Draw(t, "cost"))
		}
	}
}

// L1 as it is written: limits of one scope change their rate once between two admissions at the most, and bursts
// go up only or down only in one run.
func TestAdmittedCostStaysWithinTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCanal(t)
		raising := rapid.Bool().Draw(t, "raising")
		drive(t, c, func(i int) {
			limit := drawChoice(t, "new limit")
			if old := c.path[i].Limit.Burst; raising {
				limit.Burst = max(limit.Burst, old)
			} else {
				limit.Burst = min(limit.Burst, old)
			}
			if c.unseen[i] {
				limit.Rate = c.path[i].Limit.Rate
			}
			c.change(i, limit)
		})
		for i, step := range c.path {
			checkBound(t, step.Scope, c.seen[i], false)
		}
	})
}

// L1 with the two allowances of the package documentation, under any changes.
func TestAdmittedCostStaysWithinTheGeneralBoundUnderAnyChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCanal(t)
		drive(t, c, func(i int) { c.change(i, drawChoice(t, "new limit")) })
		for i, step := range c.path {
			checkBound(t, step.Scope, c.seen[i], true)
		}
	})
}

// The two allowances are needed: these are the schedules in which a bucket that remembers only its last write
// lets more through than L1 says.
func TestWhatABucketCannotKnow(t *testing.T) {
	t.Parallel()
	take := func(set *Set, now, changed Instant, limit Limit, cost admission.Tokens) bool {
		return set.Take(now, changed, []LevelLimit{{"acme", limit}}, cost).Err() == nil
	}
	t.Run("a rate lowered and restored between two admissions is as if it had never been lowered", func(t *testing.T) {
		t.Parallel()
		var set Set
		usual := limitOf(10, 100)
		if !take(&set, 0, 0, usual, 100) {
			t.Fatal("a full bucket refused its burst")
		}
		// 0.001 a second was in force from 1 s to 11 s, so that only about 20 tokens are due at 12 s.
		if !take(&set, 12*second, 11*second, usual, 100) {
			t.Error("the bucket knew of a change it was not told: update the documentation and law L1's bound")
		}
	})
	t.Run("a burst raised after it was lowered applies at once to a full bucket", func(t *testing.T) {
		t.Parallel()
		var set Set
		if !take(&set, 0, 0, limitOf(10, 100), 100) || !take(&set, second, second, limitOf(10, 10), 1) {
			t.Fatal("a bucket refused what it held")
		}
		if !take(&set, second+100_000, second+100_000, limitOf(10, 100), 100) {
			t.Error("the raised burst did not apply at once: update the documentation and law L1's bound")
		}
	})
}
