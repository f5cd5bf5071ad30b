package producer

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

// TestWhatWasHeardOfAQueueIsGoodForASecond: then one asks, and the others shed for another second at the longest.
func TestWhatWasHeardOfAQueueIsGoodForASecond(t *testing.T) {
	t.Parallel()
	var h heard
	answer := func(level admission.PressureLevel) []*entry {
		return []*entry{
			{job: admission.Job{Queue: "mail"}, verdict: admission.Verdict{Pressure: admission.Pressure{Level: level}}},
			{job: admission.Job{Queue: "unmeasured"}},
		}
	}
	now := time.Now()
	at := func(d time.Duration, want admission.PressureLevel) {
		t.Helper()
		if got := h.pressure("mail", now.Add(d)).Level; got != want {
			t.Errorf("after %s: level %d, want %d", d, got, want)
		}
	}
	const asks = admission.PressureLevel(0)
	at(0, asks)
	h.note(answer(admission.PressureHigh), now)
	at(heardLife, admission.PressureHigh)
	at(heardLife+1, asks)
	at(heardLife+2, admission.PressureHigh)
	at(2*heardLife, admission.PressureHigh)
	at(2*heardLife+1, asks)
	at(2*heardLife+2, asks)
	h.note(answer(admission.PressureCritical), now.Add(2*heardLife))
	at(3*heardLife, admission.PressureCritical)
	h.note(answer(admission.PressureNone), now.Add(2*heardLife))
	at(2*heardLife, asks)
	if got := h.pressure("unmeasured", now); got.Level != 0 {
		t.Errorf("a queue that nobody measures: %+v", got)
	}
}
