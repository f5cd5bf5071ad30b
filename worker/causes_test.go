package worker

import (
	"fmt"
	"testing"
	"time"
)

func TestACauseIsToldAtOnceAndThenSeldomWithTheNumberOfTheOthers(t *testing.T) {
	t.Parallel()
	f, now := newFailures(), time.Now()
	for i := range 100 {
		if due, _ := f.due("refused", now); due != (i == 0) {
			t.Fatalf("failure %d: %t", i, due)
		}
	}
	if due, _ := f.due("another", now); !due {
		t.Error("another cause is not told")
	}
	if due, unlogged := f.due("refused", now.Add(failureEvery)); !due || unlogged != 99 {
		t.Errorf("got %t, %d", due, unlogged)
	}
}

func TestCausesAreBounded(t *testing.T) {
	t.Parallel()
	f, now := newFailures(), time.Now()
	told := 0
	for i := range 10 * maxCauses {
		if due, _ := f.due(fmt.Sprint("cause ", i), now); due {
			told++
		}
	}
	if told != maxCauses+1 || len(f.mu.causes) != maxCauses+1 {
		t.Errorf("%d told, %d kept", told, len(f.mu.causes))
	}
	if due, _ := f.due("later", now.Add(3*failureEvery)); !due || len(f.mu.causes) > 2 {
		t.Errorf("told %t, %d kept", due, len(f.mu.causes))
	}
}

func TestNumbersDoNotTellCausesApart(t *testing.T) {
	t.Parallel()
	if a, b := causeText("order 17 of 2026: refused"), causeText("order 4 of 1999: refused"); a != b || a != "order # of #: refused" {
		t.Errorf("got %q, %q", a, b)
	}
}
