package producer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

// TestNoWaitIsLongerThanAMinuteAndATenth, nor shorter than a millisecond: the limit may be raised, and a small bucket has many waiters.
func TestNoWaitIsLongerThanAMinuteAndATenth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ says, least, most time.Duration }{
		{0, time.Millisecond, 1100 * time.Microsecond},
		{10 * time.Second, 10 * time.Second, 11 * time.Second},
		{72 * time.Hour, time.Minute, 66 * time.Second},
	} {
		for range 100 {
			if wait := waitFor(&admission.Verdict{RetryAfter: c.says}); wait < c.least || wait > c.most {
				t.Fatalf("told to come again after %s it waits %s, want %s to %s", c.says, wait, c.least, c.most)
			}
		}
	}
}

// TestMissedTicksAreTheLatestSoMany and no more, one in the last ten seconds beside them.
func TestMissedTicksAreTheLatestSoMany(t *testing.T) {
	t.Parallel()
	spec, err := parseSpec("@every 1m", false, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_040, 0).UTC().Truncate(time.Minute).Add(30 * time.Second)
	for _, most := range []int{1, 2, 60, 61, 999, 1000} {
		e := &periodic{PeriodicJob: PeriodicJob{Missed: MissedAll, MaxMissed: most}, schedule: spec}
		due := e.due(now.Add(-48*time.Hour), now)
		if len(due) != most {
			t.Fatalf("%d ticks are due, want %d", len(due), most)
		}
		for i, tick := range due {
			if want := now.Truncate(time.Minute).Add(-time.Duration(most-1-i) * time.Minute); !tick.Equal(want) {
				t.Fatalf("of %d the tick %d is %s, want %s", most, i, tick, want)
			}
		}
	}
	e := &periodic{PeriodicJob: PeriodicJob{Missed: MissedOnce, MaxMissed: 1000}, schedule: spec}
	if due := e.due(now.Add(-48*time.Hour), now); len(due) != 1 {
		t.Errorf("%d ticks are due for all, want 1", len(due))
	}
	if due := e.due(now.Add(-3*time.Minute), now); len(due) != 1 {
		t.Errorf("%d ticks are due for three, want 1", len(due))
	}
}

// TestHowManyTicksAJobMayMissIsBounded at 1 and at 1000.
func TestHowManyTicksAJobMayMissIsBounded(t *testing.T) {
	t.Parallel()
	for missed, ok := range map[int]bool{-1: false, 1: true, 1000: true, 1001: false} {
		e := &periodic{PeriodicJob: PeriodicJob{Name: "n", Spec: "@hourly", Missed: MissedAll, MaxMissed: missed}}
		err := errors.Join(e.check("Jobs[0]", PeriodicConfig{Location: time.UTC})...)
		if (err == nil) != ok || err != nil && !errors.Is(err, admission.ErrInvalid) {
			t.Error(fmt.Sprint(missed, " ticks: ", err))
		}
	}
}
