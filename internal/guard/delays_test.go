package guard

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestNewWorkWaitsWhileSomethingWarns, by a tenth more or less each, and not below and not at the limit, where none begins; and for nobody who has
// gone.
func TestNewWorkWaitsWhileSomethingWarns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{MaxMemory: 100, Delays: Delays{Warn: time.Second}}, Parts{Sampler: &fixed{}})
		if err != nil {
			t.Fatal(err)
		}
		held := func(ctx context.Context) time.Duration {
			began := time.Now()
			g.Hold(ctx)
			return time.Since(began)
		}
		now := time.Now()
		for _, step := range []struct {
			memory int64
			warns  bool
		}{{10, false}, {85, true}, {110, false}, {96, false}, {90, true}, {10, false}} {
			now = now.Add(time.Second)
			g.look(now, Sample{Memory: step.memory})
			seen := map[time.Duration]bool{}
			for range 20 {
				took := held(t.Context())
				seen[took] = true
				if !step.warns && took != 0 || step.warns && (took < 900*time.Millisecond || took > 1100*time.Millisecond) {
					t.Fatalf("at %d of 100 it waits %s", step.memory, took)
				}
			}
			if step.warns && len(seen) < 10 {
				t.Errorf("20 waits are %d different ones", len(seen))
			}
		}
		g.look(now.Add(time.Second), Sample{Memory: 85})
		gone, leave := context.WithCancel(t.Context())
		leave()
		if took := held(gone); took != 0 {
			t.Errorf("who has gone waits %s", took)
		}
	})
}

// TestWithoutADelayNothingWaitsAtAWarning, which is the default, nor for calls and connections, which have bounds of their own.
func TestWithoutADelayNothingWaitsAtAWarning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := []Reading{{Kind: Concurrent, Value: 85, Limit: 100, Bounded: true}}
		for _, c := range []struct {
			delays Delays
			memory int64
		}{{Delays{}, 85}, {Delays{Warn: time.Second}, 1}} {
			g, err := New(Config{MaxMemory: 100, Delays: c.delays}, Parts{Sampler: &fixed{}, Bounds: func() []Reading { return calls }})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			g.look(began, Sample{Memory: c.memory})
			g.Hold(t.Context())
			if took := time.Since(began); took != 0 {
				t.Errorf("%+v: it waits %s", c, took)
			}
		}
	})
}

// TestALookCostsLittle: a throttled process that has nothing to do looks once a second, so one look may take 9 ms of processors' time for it to use
// less than 1 %. That it does no more than look is TestAThrottledGuardSleeps.
func TestALookCostsLittle(t *testing.T) { //nolint:paralleltest // It counts the time of processors of the whole process.
	g, err := New(Config{MaxMemory: 1, MaxGoroutines: 1}, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	g.free = func() {} // Garbage is given back twice a minute.
	spent := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	const looks = 100
	began, now := spent(), time.Now()
	for range looks {
		now = now.Add(time.Second)
		sample, err := g.parts.Sampler.Sample(now)
		if err != nil {
			t.Fatal(err)
		}
		g.look(now, sample)
		if _, ok := g.TryBegin(); ok {
			t.Fatal("new work begins")
		}
	}
	if each := (spent() - began) / looks; each > 9*time.Millisecond {
		t.Errorf("a look takes %s", each)
	} else {
		t.Logf("a look takes %s, which is %.3f %% of a processor", each, 100*each.Seconds())
	}
}
