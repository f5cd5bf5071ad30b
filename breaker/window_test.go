package breaker

import (
	"testing"
	"time"
)

// A goroutine may be stopped between finding the slice in force and counting in it, for any time. It must then either
// be counted in the slice or be told that the slice is gone.
func TestACallThatHoldsAnOldSliceIsCountedOrTold(t *testing.T) {
	t.Parallel()
	second := Instant(time.Second)
	for name, leave := range map[string]func(*Breaker){
		"slid out":         func(b *Breaker) { b.AdvanceAt(10 * second) },
		"closed anew":      func(b *Breaker) { b.ResetAt(0, "test") },
		"clock set back":   func(b *Breaker) { b.AdvanceAt(-10 * second) },
		"forced and ended": func(b *Breaker) { b.ForceClosedAt(0, 0, "test"); b.AdvanceAt(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := mustNew(t, Config{})
			held := b.live.Load()
			if !held.successes.add() {
				t.Fatal("the slice in force does not count")
			}
			leave(b)
			if held.successes.add() {
				t.Error("counted in a slice that nobody reads")
			}
			if got := b.SnapshotAt(0).Totals.Successes; got != 1 {
				t.Errorf("%d successes, want 1", got)
			}
		})
	}
	for name, keep := range map[string]func(*Breaker){
		"not the newest": func(b *Breaker) { b.AdvanceAt(9 * second) },
		"open":           func(b *Breaker) { b.ForceOpenAt(0, second, "test") },
		"half-open":      func(b *Breaker) { b.ForceOpenAt(0, 0, "test"); b.AdvanceAt(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := mustNew(t, Config{})
			held := b.live.Load()
			keep(b)
			if !held.successes.add() {
				t.Error("refused by a slice that is still read")
			}
			b.ResetAt(9*second, "test")
			if got := b.SnapshotAt(9 * second).Totals.Successes; got != 1 {
				t.Errorf("%d successes, want 1", got)
			}
		})
	}
}
