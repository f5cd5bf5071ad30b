package gradient

import (
	"testing"
	"time"
)

func (l *Limit) inForce() int { return int(l.limit) }

// second has n pieces of work under way that all take so long, and ends them after a second.
func second(t *testing.T, l *Limit, now *time.Time, n int, took time.Duration) {
	t.Helper()
	for range n {
		if !l.acquire() {
			t.Fatalf("refused at a limit of %d", l.inForce())
		}
	}
	for range n - 1 {
		l.release(took, true, *now)
	}
	*now = now.Add(window)
	l.release(took, true, *now)
}

func TestTheLimitGrowsWhileWorkTakesAsLongAndFallsWhileItTakesLonger(t *testing.T) {
	t.Parallel()
	l := New(50)
	now := l.began
	for _, step := range []struct {
		took time.Duration
		want int
	}{
		{10 * time.Millisecond, 50}, // 50 + 4/5
		{10 * time.Millisecond, 51}, // 51.6
		{10 * time.Millisecond, 52},
		{100 * time.Millisecond, 47}, // The mean is 32.5 ms, the slope a half: 52.4·0.9 + 0.8 = 47.96.
	} {
		second(t, l, &now, 40, step.took)
		if l.inForce() != step.want {
			t.Fatalf("got %d after %s, want %d", l.inForce(), step.took, step.want)
		}
	}
	for range 100 {
		second(t, l, &now, min(20, l.inForce()), time.Second)
	}
	if l.inForce() < least {
		t.Errorf("got %d, less than is allowed", l.inForce())
	}
	before := l.inForce()
	second(t, l, &now, windowSize-1, time.Minute) // Too few to be a mean.
	second(t, l, &now, before/2-1, time.Minute)
	if l.inForce() != before {
		t.Errorf("got %d, want %d where less than half is in use", l.inForce(), before)
	}
}

func TestNoMoreThanTheLimitIsUnderWay(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := New(1)
	begun := 0
	for range most {
		if l.acquire() {
			begun++
		}
	}
	if begun != least || l.acquire() {
		t.Errorf("%d began, want %d", begun, least)
	}
	l.release(time.Second, false, now)
	if !l.acquire() || l.acquire() {
		t.Error("what has ended leaves room for one")
	}
}
