package main

import "testing"

func TestTheAdaptiveLimiterBeginsWithTheSlots(t *testing.T) {
	t.Parallel()
	const slots = 50
	l := newAdaptive(slots)
	var releases []func(bool)
	for range slots {
		release, ok := l.Acquire()
		if !ok {
			t.Fatalf("refused behind %d", len(releases))
		}
		releases = append(releases, release)
	}
	if _, ok := l.Acquire(); ok {
		t.Error("one more than the slots was let through")
	}
	releases[0](true)
	releases[1](false)
	for range 2 {
		if _, ok := l.Acquire(); !ok {
			t.Error("what was released is not free")
		}
	}
}
