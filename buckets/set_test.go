package buckets

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

func TestTakeNamesTheOutermostOfEqualWaits(t *testing.T) {
	t.Parallel()
	var set Set
	limit := limitOf(10, 5)
	path := []LevelLimit{{admission.Global, limit}, {"acme", limit}, {"acme:mail", limit}}
	if err := set.Take(0, 0, path[1:], 5).Err(); err != nil {
		t.Fatal(err)
	}
	want := admission.Verdict{
		Decision: admission.Refused, Reason: admission.ReasonLimited,
		Scope: "acme", TokensLeft: 1, Burst: 5, RetryAfter: 100 * time.Millisecond,
	}
	if got := set.Take(150_000, 0, path, 2); got.Scope != want.Scope || got.TokensLeft != 1 || got.RetryAfter != 50*time.Millisecond {
		t.Errorf("Take = %+v, want the scope, the tokens and half the wait of %+v", got, want)
	}
	if set.Bucket(admission.Global) != (Bucket{}) {
		t.Error("a refusal by an inner scope charged the outermost")
	}
}

func TestTakeRefusesForGoodBeforeItLooksAtLevels(t *testing.T) {
	t.Parallel()
	var set Set
	path := []LevelLimit{{admission.Global, limitOf(1, 10)}, {"acme", limitOf(1, 3)}, {"acme:mail", limitOf(1, 2)}}
	if err := set.Take(0, 0, path[:1], 10).Err(); err != nil {
		t.Fatal(err)
	}
	got := set.Take(0, 0, path, 4)
	if want := (admission.Verdict{Reason: admission.ReasonTooCostly, Scope: "acme", Burst: 3}); got != want || !got.Permanent() {
		t.Errorf("Take = %+v, want %+v", got, want)
	}
}

func TestTakeBatchAdmitsInPart(t *testing.T) {
	t.Parallel()
	var set Set
	path := []LevelLimit{{"acme", limitOf(1, 5)}}
	verdicts := set.TakeBatch(0, 0, []Charge{{path, 3}, {path, 3}, {path, 9}, {path, 2}, {nil, 1}})
	var got strings.Builder
	for _, v := range verdicts {
		fmt.Fprintf(&got, "%s/%s ", v.Decision, v.Reason)
	}
	if want := "admitted/ refused/limited refused/too_costly admitted/ admitted/ "; got.String() != want {
		t.Errorf("TakeBatch = %s, want %s", got.String(), want)
	}
	if level := set.LevelAt(0, 0, path[0]); level != 0 {
		t.Errorf("%d micro-tokens are left, want 0", level)
	}
}

func TestSetHoldsOnlyBucketsThatWereCharged(t *testing.T) {
	t.Parallel()
	var set Set
	step := LevelLimit{"acme", limitOf(1, 5)}
	set.Put("other", Bucket{})
	if set.LevelAt(0, 0, step) != MicroOf(5) || set.Len() != 0 {
		t.Error("asking for a level stored a bucket")
	}
	set.Take(0, 0, []LevelLimit{step}, 1)
	clone := set.Clone()
	clone.Put("acme", Bucket{})
	if set.Len() != 1 || clone.Len() != 0 {
		t.Errorf("the set holds %d buckets and its changed clone %d, want 1 and 0", set.Len(), clone.Len())
	}
}

func TestAppendPathLeavesOutDisabledLevels(t *testing.T) {
	t.Parallel()
	limits := [admission.Levels]admission.Limit{
		admission.LevelGlobal:   {Disabled: true},
		admission.LevelTenant:   admission.PerSecond(200).WithBurst(50),
		admission.LevelQueue:    {Disabled: true},
		admission.LevelPriority: {Tokens: 1, Per: time.Minute, Burst: 2},
	}
	got := AppendPath(nil, limits, "acme", "mail", admission.High)
	want := []LevelLimit{{"acme", limitOf(200, 50)}, {"acme:mail:high", limitOf(1.0/60, 2)}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("AppendPath = %v, want %v", got, want)
	}
}

func TestLeastIsTheBucketThatHoldsLeast(t *testing.T) {
	t.Parallel()
	limits := [admission.Levels]admission.Limit{admission.PerSecond(1).WithBurst(9), admission.PerSecond(1).WithBurst(4), admission.PerSecond(1).WithBurst(6), {Disabled: true}}
	path := AppendPath(nil, limits, "acme", "mail", "high")
	var set Set
	for _, step := range []struct{ cost, left, burst admission.Tokens }{{0, 4, 4}, {1, 3, 4}, {3, 0, 4}} {
		if step.cost > 0 {
			set.Take(0, 0, path, step.cost)
		}
		if _, left, burst := set.Least(0, 0, path); left != step.left || burst != step.burst {
			t.Errorf("after %d tokens %d of %d are left, want %d of %d", step.cost, left, burst, step.left, step.burst)
		}
	}
	set.Take(0, 0, path[2:], 2) // The queue's alone; it is now as empty as the tenant's, which is the outer one.
	if scope, left, burst := set.Least(0, 0, path); scope != "acme" || left != 0 || burst != 4 {
		t.Errorf("%s: %d of %d", scope, left, burst)
	}
	if scope, left, burst := set.Least(0, 0, nil); scope != "" || left != 0 || burst != 0 {
		t.Errorf("an empty path has %d of %d", left, burst)
	}
}
