package scheduler

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/pressure"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestAHintIsHowLongTheDrainTakes: whoever comes again after it finds half of the jobs that may wait, at the pace of now, or a wait of half of the target,
// whichever is later: not sooner than a level takes to fall, nor later than a minute.
func TestAHintIsHowLongTheDrainTakes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := policy.Pressured{
			MaxDepth: rapid.SampledFrom([]int{0, 10, 1000}).Draw(t, "max depth"), TargetWait: rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(t, "target"),
			Interval: time.Second,
		}
		waiting, pace := rapid.IntRange(1, 3000).Draw(t, "waiting"), time.Duration(rapid.IntRange(1, 50_000).Draw(t, "µs a job"))*time.Microsecond
		load := store.QueueLoad{Waiting: int64(waiting), Wait: time.Duration(waiting) * pace}
		got := hint(p, &load)
		left := max(float64(load.Wait-got)/float64(pace), 0) // jobs that wait then
		switch least := pressure.Samples * p.Interval; {
		case got < least || got > time.Minute:
			t.Fatalf("told to wait for %s", got)
		case got == time.Minute: // It takes longer.
		case p.MaxDepth > 0 && left > float64(p.MaxDepth)/2+1+float64(time.Millisecond)/float64(pace):
			t.Fatalf("%.1f of at most %d wait still after %s", left, p.MaxDepth, got)
		case p.TargetWait > 0 && load.Wait-got > p.TargetWait/2+time.Millisecond:
			t.Fatalf("a wait of %s after %s", load.Wait-got, got)
		case got > least && (p.MaxDepth == 0 || left < float64(p.MaxDepth/2)-float64(time.Millisecond)/float64(pace)) && (p.TargetWait == 0 || load.Wait-got < p.TargetWait/2-time.Millisecond):
			t.Fatalf("%s is longer than it takes: %.1f wait then", got, left)
		}
	})
}
