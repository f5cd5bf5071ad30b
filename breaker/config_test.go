package breaker

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

func TestTheZeroConfigWorks(t *testing.T) {
	t.Parallel()
	c := mustNew(t, Config{}).Config()
	if c.Rand == nil || c.Window != 10*time.Second || c.MaxProbes != 1 || c.OpenMax != 10*time.Minute {
		t.Errorf("defaults are missing: %+v", c)
	}
}

func TestEveryBadFieldIsNamedWithItsValueAndRange(t *testing.T) {
	t.Parallel()
	_, err := NewAt(0, Config{
		Window: -time.Second, Buckets: 101, MinCalls: -1, FailureRate: 1.5, FailureThreshold: -2,
		SlowCallDuration: 25 * time.Hour, SlowCallRate: Ratio(math.NaN()), SuccessThreshold: 1001, MaxProbes: -3,
		ProbeTimeout: time.Nanosecond, OpenBase: 2 * time.Minute, OpenMax: time.Minute, ResetAfter: -1,
	})
	for _, want := range []string{
		"invalid Window -1s: allowed is 10ms to 1h0m0s", "invalid Buckets 101: allowed is 1 to 100",
		"invalid MinCalls -1: allowed is 1 to 1000000", "invalid FailureRate 1.5: allowed is above 0, at most 1",
		"invalid FailureThreshold -2: allowed is 1 to 1000000",
		"invalid SlowCallDuration 25h0m0s: allowed is 1ms to 24h0m0s", "invalid SlowCallRate NaN",
		"invalid SuccessThreshold 1001: allowed is 1 to 1000", "invalid MaxProbes -3: allowed is 1 to 100",
		"invalid ProbeTimeout 1ns: allowed is 1ms to 1h0m0s", "invalid OpenMax 1m0s: allowed is 2m0s to 24h0m0s",
		"invalid ResetAfter -1ns: allowed is 1ms to 24h0m0s",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if told := admission.FieldErrors(errors.Unwrap(err)); told.Error() != errors.Unwrap(err).Error() || !errors.Is(told, admission.ErrInvalid) {
		t.Errorf("%v is told as %v, which is to be the same and match headgate.ErrInvalid", err, told)
	}
}

func TestAnOpenBaseAboveTheDefaultOpenMaxRaisesIt(t *testing.T) {
	t.Parallel()
	c := mustNew(t, Config{OpenBase: time.Hour}).Config()
	if c.OpenMax != time.Hour {
		t.Errorf("OpenMax is %v, want 1h", c.OpenMax)
	}
	if _, err := NewAt(0, Config{OpenBase: 25 * time.Hour}); err == nil || strings.Count(err.Error(), "invalid") > 2 {
		t.Errorf("an OpenBase of 25h: %v", err)
	}
}

func TestCooldownDoublesUpToItsLargest(t *testing.T) {
	t.Parallel()
	c := Config{OpenBase: time.Second, OpenMax: 5 * time.Second}
	for earlier, seconds := range []int{1, 2, 4, 5, 5} {
		want := time.Duration(seconds) * time.Second
		if got := c.cooldown(uint64(earlier), 1); got != want {
			t.Errorf("after %d trips in a row: %v, want %v", earlier, got, want)
		}
	}
	for _, earlier := range []uint64{62, 63, 64, 1 << 40} {
		if got := c.cooldown(earlier, 0); got != 2500*time.Millisecond {
			t.Errorf("after %d trips in a row with the smallest jitter: %v, want 2.5s", earlier, got)
		}
	}
	for _, wild := range []float64{-3, 7, math.Inf(1)} {
		if got := c.cooldown(0, wild); got < time.Second/2 || got > time.Second {
			t.Errorf("with a jitter of %v: %v, want 0.5s to 1s", wild, got)
		}
	}
}

func TestTheZeroCallDoesNothing(t *testing.T) {
	t.Parallel()
	var c Call
	for _, change := range []Transition{c.SuccessAt(1), c.FailureAt(1), c.IgnoreAt(1), c.MarkSlowAt(1)} {
		if change.Happened() {
			t.Errorf("the zero call made %+v", change)
		}
	}
	if c.Probe() || c.BeganAt() != 0 {
		t.Error("the zero call is a probe, or began")
	}
}

// It is not parallel: AllocsPerRun counts the whole process.
func TestPassingAndRefusingDoNotAllocate(t *testing.T) {
	b := mustNew(t, Config{})
	for _, state := range []State{Closed, Open} {
		allocations := testing.AllocsPerRun(100, func() {
			c, _, _ := b.TryAcquireAt(1)
			c.SuccessAt(2)
		})
		if allocations != 0 {
			t.Errorf("%v allocations a call while %v", allocations, state)
		}
		b.ForceOpenAt(1, endless, "refuse")
	}
}

func TestNamesOfStatesAndCausesAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for cause := range Cause(len(causeNames)) {
		name := cause.String()
		if name == "" || name == "unknown" || seen[name] {
			t.Errorf("cause %d is named %q", cause, name)
		}
		seen[name] = true
	}
	if Cause(200).String() != "unknown" || State(200).String() != "unknown" {
		t.Error("an unknown value has a name")
	}
}
