package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/gates"
)

// TestOthersFollowTheShare has jobs in one partition be refused by what is left of the global limit beside the part that is kept from them.
func TestOthersFollowTheShare(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.put(store.Cap{Gate: store.DownstreamRateGate("api"), Rate: rateOf4})
	d.global = globalOf4.Keeping(50)
	passed := 0
	for n := range 12 {
		for range 20 {
			d.pass(25 * time.Millisecond)
			if got := d.admit(2, 60, 3, ""); n >= 6 {
				passed += got
			}
			d.end(2)
		}
		check(t, d.balancer.Step(t.Context()))
	}
	// Six steps are three seconds.
	if most := (3*int(globalOf4.Tokens) + int(globalOf4.Burst)) / 2; passed < 3*int(globalOf4.Tokens)/2*9/10 || passed > most {
		t.Errorf("%d jobs were admitted, of at most %d", passed, most)
	}
}

// TestWhatCameInForOthersCameAtTheirOldShare: a partition whose share grows has no more of what came in before.
func TestWhatCameInForOthersCameAtTheirOldShare(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.global = globalOf4.Keeping(50) // 250 a second in each, and 50.
	if got := d.admit(2, 100, 3, ""); got != 50 {
		t.Fatalf("%d of 50 admitted", got)
	}
	d.pass(100 * time.Millisecond)
	_, _, err := d.part(2).Share(t.Context(), 1, "test", []gates.Setting{{Bound: store.GlobalBound, Units: 4, Of: 4}})
	check(t, err)
	if got := d.admit(2, 100, 3, ""); got != 25 {
		t.Errorf("%d were admitted of the 25 that came in", got)
	}
	d.pass(20 * time.Millisecond)
	if got := d.admit(2, 100, 3, ""); got != 20 {
		t.Errorf("%d were admitted of the 20 that came in at 1,000 a second", got)
	}
}

// TestWhatIsLentIsGivenBackFirst: others have all that comes in while nobody else asks, and nothing before there is again what they have to leave.
func TestWhatIsLentIsGivenBackFirst(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	lent := globalOf4.Keeping(40).Lending() // 500 a second in each, and 100, of which others leave 40.
	for i, step := range []struct {
		after time.Duration
		of    admission.Limit
		want  int
	}{
		{0, lent, 60}, {100 * time.Millisecond, lent, 50}, {0, globalOf4, 40}, {60 * time.Millisecond, lent, 0}, {40 * time.Millisecond, lent, 10}, {0, globalOf4, 40},
	} {
		d.pass(step.after)
		d.global = step.of
		if got := d.admit(2, 120, 3, ""); got != step.want {
			t.Errorf("%d: %d were admitted, want %d", i, got, step.want)
		}
	}
	q := store.Question{Cost: 1, Tenant: "tenant-0", Limits: [admission.Levels]admission.Limit{lent, {Disabled: true}, {Disabled: true}, {Disabled: true}}}
	version, _, err := d.part(2).PolicyEdit(t.Context())
	check(t, err)
	_, answers, err := d.part(2).Check(t.Context(), version, true, []store.Question{q})
	check(t, err)
	if v := answers[0].Verdict; !store.IsKept(&v) || v.TokensLeft != 0 || v.Burst != 60 || v.RetryAfter != 82*time.Millisecond {
		t.Errorf("others are told %+v", v)
	}
}

// TestOthersOfNoTenantHaveAllThatIsLeftToThem: of 30 tokens 20 are left to them over three partitions, and whichever of these has some answers, though
// another has more of the global limit.
func TestOthersOfNoTenantHaveAllThatIsLeftToThem(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 0)
	other := func(tenant string) store.Question {
		q := anybody(2)
		q.Tenant, q.Limits[admission.LevelGlobal] = tenant, q.Limits[admission.LevelGlobal].Keeping(33)
		return q
	}
	in := func(partition int) string {
		for i := 0; ; i++ {
			if name := keyOfTenant(i).Tenant; s.PartitionOf(name) == partition {
				return name
			}
		}
	}
	named := anybody(3)
	named.Tenant = in(1)
	for _, q := range []store.Question{other(in(0)), other(in(0)), other(in(0)), named, named} {
		if granted, answers, err := s.Check(t.Context(), 0, false, []store.Question{q}); !granted || err != nil {
			t.Fatalf("%+v, %v", answers, err)
		}
	}
	// Of 6 2/3 each the partitions have 2/3, 6 2/3 and 6 2/3 for others, and 4, 4 and 10 of the global limit.
	for i, want := range []bool{true, true, true, true, true, false} {
		granted, answers, err := s.Check(t.Context(), 0, false, []store.Question{other("")})
		check(t, err)
		if granted != want {
			t.Errorf("%d: %+v", i, answers)
		}
		if got, left := (answers[0].Others + buckets.MicroPerToken/2).Tokens(), admission.Tokens(12-2*i); granted && got != left {
			t.Errorf("%d: others have %d left, want %d", i, got, left)
		}
	}
}
