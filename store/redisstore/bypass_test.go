package redisstore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// bypassYard is a yard with jobs of class high that may go beside the limits of their queue and class.
type bypassYard struct {
	*yard
	limits [admission.Levels]admission.Limit
	mark   [2]int
	jobs   int
}

// newBypassYard has buckets of which next to nothing comes in during a test, of global, tenant, queue and class.
func newBypassYard(t *testing.T, reserve, share int, bursts ...admission.Tokens) *bypassYard {
	t.Helper()
	y := &bypassYard{yard: newYard(t), mark: [2]int{reserve, share}}
	for level := range y.limits {
		y.limits[level] = admission.Limit{Disabled: true}
		if level < len(bursts) {
			y.limits[level] = admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: bursts[level]}
		}
	}
	return y
}

// limitsOf are the limits of a job of high, or of another class.
func (y *bypassYard) limitsOf(high bool) *[admission.Levels]admission.Limit {
	limits := y.limits
	if high {
		limits[admission.LevelGlobal] = limits[admission.LevelGlobal].Bypassing(y.mark[0], y.mark[1])
	}
	return &limits
}

// enter asks for a job, and returns its ID and what is answered.
func (y *bypassYard) enter(high bool, cost admission.Tokens) (string, admission.Verdict) {
	y.tb.Helper()
	y.jobs++
	j := mail("acme", "j"+strconv.Itoa(y.jobs))
	j.Cost, j.Priority = cost, admission.Low
	c := store.Candidate{Job: &j, Class: 2, Limits: y.limitsOf(high)}
	if high {
		j.Priority, c.Class = admission.High, 0
	}
	verdicts, err := y.store.Admit(y.tb.Context(), 0, []store.Candidate{c})
	check(y.tb, err)
	return j.ID, verdicts[0]
}

// left asserts what the buckets of global, tenant, queue and, last, of the tenant's share hold, in whole tokens, as far as it is said.
func (y *bypassYard) left(when string, want ...admission.Tokens) {
	y.tb.Helper()
	limits := y.limitsOf(true)
	share, _ := limits[admission.LevelGlobal].Share(&limits[admission.LevelTenant])
	own := [admission.Levels]admission.Limit{{Disabled: true}, {Disabled: true}, share, {Disabled: true}}
	_, answers, err := y.store.Check(y.tb.Context(), 0, true, []store.Question{
		{Tenant: "acme", Queue: "mail", Cost: 1, Limits: y.limits}, {Tenant: "acme", Queue: "*", Cost: 1, Limits: own},
	})
	check(y.tb, err)
	var got []admission.Tokens
	for _, of := range []admission.Micro{
		answers[0].Left[admission.LevelGlobal], answers[0].Left[admission.LevelTenant], answers[0].Left[admission.LevelQueue], answers[1].Left[admission.LevelQueue],
	} {
		got = append(got, of.Tokens())
	}
	for i, n := range want {
		if got[i] != n {
			y.tb.Errorf("%s: global, tenant, queue and share hold %v, want %v", when, got, want)
			return
		}
	}
}

// TestABypassLeavesADebtInTheGlobalBucketAlone, no larger than the reserve, and nothing of the queue's is taken.
func TestABypassLeavesADebtInTheGlobalBucketAlone(t *testing.T) {
	t.Parallel()
	y := newBypassYard(t, 50, 20, 10, 100, 5)
	for i, step := range []struct {
		high         bool
		cost         admission.Tokens
		in, bypassed bool
	}{{true, 9, true, true}, {false, 1, true, false}, {false, 1, false, false}, {true, 4, true, true}, {true, 2, false, false}, {true, 1, true, true}, {true, 1, false, false}} {
		_, v := y.enter(step.high, step.cost)
		if (v.Decision == admission.Admitted) != step.in || v.Bypassed != step.bypassed {
			t.Errorf("%d: %+v", i, v)
		}
		if !step.in && (v.Reason != admission.ReasonLimited || v.Scope != admission.Global) {
			t.Errorf("%d is refused with %+v", i, v)
		}
		if i == 3 && v.TokensLeft != -4 {
			t.Errorf("what is left is told as %+v", v)
		}
	}
	y.left("in the end", -5, 85, 4, 6)
}

// TestABypassTakesATenantNeverBelowZero, however much of the global limit is left.
func TestABypassTakesATenantNeverBelowZero(t *testing.T) {
	t.Parallel()
	y := newBypassYard(t, 100, 100, 1000, 10)
	for i, want := range []bool{true, false} {
		if _, v := y.enter(true, 8); v.Bypassed != want || !want && (v.Scope != "acme" || v.TokensLeft != 2) {
			t.Errorf("%d: %+v", i, v)
		}
	}
	y.left("in the end", 992, 2)
}

// TestBeyondItsShareAJobGoesTheWayOfAll: it is refused only where there is too little, too, and told which of both ways it can go sooner.
func TestBeyondItsShareAJobGoesTheWayOfAll(t *testing.T) {
	t.Parallel()
	y := newBypassYard(t, 50, 10, 1000, 100, 5)
	if _, v := y.enter(true, 8); !v.Bypassed {
		t.Errorf("%+v", v)
	}
	if _, v := y.enter(true, 3); v.Decision != admission.Admitted || v.Bypassed || v.TokensLeft != 2 || v.Burst != 5 {
		t.Errorf("beyond the share: %+v", v)
	}
	y.left("one went beside, one did not", 989, 89, 2, 2)
	if _, v := y.enter(true, 3); v.Reason != admission.ReasonLimited || v.Scope != "acme:mail" || v.RetryAfter.Round(time.Hour) != 24*time.Hour {
		t.Errorf("of two waits, 1 and 10 days, it is told %+v", v)
	}
	_, v := y.enter(true, 6)
	if v.Reason != admission.ReasonLimited || v.Scope != "acme" || v.TokensLeft != 2 || v.Burst != 10 || v.RetryAfter.Round(time.Hour) != 40*24*time.Hour || !strings.Contains(v.Detail, "beside") {
		t.Errorf("what costs more than the queue's burst, and the share's not, is told %+v", v)
	}
	if _, v = y.enter(true, 11); !v.Permanent() || v.Scope != "acme:mail" || v.Burst != 5 {
		t.Errorf("what costs more than both is told %+v", v)
	}
	y.left("nothing is charged that is refused", 989, 89, 2, 2)
}

// TestCostsOfABypassAreTruedUpOnTheSafeSide: nobody notes which way a job went. What it did not need goes back to the buckets of both ways, what it lacks is taken of all.
func TestCostsOfABypassAreTruedUpOnTheSafeSide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spent admission.Tokens
		want  []admission.Tokens
	}{"less": {1, []admission.Tokens{94, 94, 15, 6}}, "as much": {4, []admission.Tokens{91, 91, 15, 6}}, "more": {9, []admission.Tokens{86, 86, 10, 1}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newBypassYard(t, 50, 10, 100, 100, 20)
			y.register(2)
			y.enter(false, 5)
			id, v := y.enter(true, 4)
			if !v.Bypassed {
				t.Fatalf("%+v", v)
			}
			y.left("before", 91, 91, 15, 6)
			y.read(2)
			y.finish(id, store.Finish{Outcome: store.Complete, Queue: "mail", Spent: &store.Spent{Cost: c.spent, Class: admission.High, Limits: y.limitsOf(true)}})
			y.left("after", c.want...)
		})
	}
}

// TestNobodyGoesBesideWithoutAShare: neither a tenant that has no limit, nor one whose share is less than a token.
func TestNobodyGoesBesideWithoutAShare(t *testing.T) {
	t.Parallel()
	small := newBypassYard(t, 50, 10, 100, 9, 5)
	none := newBypassYard(t, 50, 10, 100, 100, 5)
	none.limits[admission.LevelTenant].Disabled = true
	for _, y := range []*bypassYard{small, none} {
		if _, v := y.enter(true, 4); v.Decision != admission.Admitted || v.Bypassed {
			t.Errorf("%+v", v)
		}
	}
	small.left("of the queue", 96, 5, 1)
}

// TestManyWaysBesideFitInOneCall: as many as a call may have, each of a tenant with other limits.
func TestManyWaysBesideFitInOneCall(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	jobs, candidates := make([]admission.Job, store.MaxBatchJobs), make([]store.Candidate, store.MaxBatchJobs)
	for i := range jobs {
		jobs[i] = mail("t"+strconv.Itoa(i), "a")
		limits := [admission.Levels]admission.Limit{
			admission.PerHour(1000).WithBurst(1000).Bypassing(0, 10), admission.PerHour(1).WithBurst(admission.Tokens(20 + i)), admission.PerHour(1).WithBurst(1), {Disabled: true},
		}
		jobs[i].Cost = limits[admission.LevelTenant].Burst / 10
		candidates[i] = store.Candidate{Job: &jobs[i], Limits: &limits}
	}
	verdicts, err := y.store.Admit(t.Context(), 0, candidates)
	check(t, err)
	for i, v := range verdicts {
		if !v.Bypassed {
			t.Errorf("%d: %+v", i, v)
		}
	}
}

// TestPartitionsDivideTheReserve: of three each lets such jobs take a third of the global burst, and leave a third of the debt.
func TestPartitionsDivideTheReserve(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 0)
	limits := &[admission.Levels]admission.Limit{
		admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 30}.Bypassing(50, 100), {Tokens: 1, Per: 24 * time.Hour, Burst: 100}, {Disabled: true}, {Disabled: true},
	}
	seen := map[int]bool{}
	for i := 0; len(seen) < 3; i++ {
		j := mail("t"+strconv.Itoa(i), "a")
		part := s.PartitionOf(j.Tenant)
		if seen[part] {
			continue
		}
		seen[part] = true
		for n, want := range []bool{true, false} {
			j.ID, j.Cost = strconv.Itoa(n), []admission.Tokens{10, 6}[n]
			verdicts, err := s.Partitions()[part].Admit(t.Context(), 0, []store.Candidate{{Job: &j, Limits: limits}})
			check(t, err)
			if verdicts[0].Bypassed != want {
				t.Errorf("partition %d, %d: %+v", part, n, verdicts[0])
			}
		}
		j.ID, j.Cost = "5", 5
		verdicts, err := s.Partitions()[part].Admit(t.Context(), 0, []store.Candidate{{Job: &j, Limits: limits}})
		check(t, err)
		if !verdicts[0].Bypassed || verdicts[0].TokensLeft != -5 {
			t.Errorf("partition %d: %+v", part, verdicts[0])
		}
	}
}
