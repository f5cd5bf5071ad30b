package producer

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestWhatWasHeardOfAQueueIsGoodForASecond: then one asks, and the others shed for another second at the longest.
func TestWhatWasHeardOfAQueueIsGoodForASecond(t *testing.T) {
	t.Parallel()
	var h heard
	now := time.Now()
	hear := func(level admission.PressureLevel, after time.Duration) {
		h.note([]store.Candidate{{Job: &admission.Job{Queue: "mail"}}, {Job: &admission.Job{Queue: "unmeasured"}}},
			[]admission.Verdict{{Pressure: admission.Pressure{Level: level}}, {}}, now.Add(after))
	}
	at := func(d time.Duration, want admission.PressureLevel) {
		t.Helper()
		if got := h.pressure("mail", now.Add(d)).Level; got != want {
			t.Errorf("after %s: level %d, want %d", d, got, want)
		}
	}
	const asks = admission.PressureLevel(0)
	at(0, asks)
	hear(admission.PressureHigh, 0)
	at(heardLife, admission.PressureHigh)
	at(heardLife+1, asks)
	at(heardLife+2, admission.PressureHigh)
	at(2*heardLife, admission.PressureHigh)
	at(2*heardLife+1, asks)
	at(2*heardLife+2, asks)
	hear(admission.PressureCritical, 2*heardLife)
	at(3*heardLife, admission.PressureCritical)
	hear(admission.PressureNone, 2*heardLife)
	at(2*heardLife, asks)
	if got := h.pressure("unmeasured", now); got.Level != 0 {
		t.Errorf("a queue that nobody measures: %+v", got)
	}
}
