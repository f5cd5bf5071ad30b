package tally

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// TestTheNumbersOfRefusalsAddUp: whatever comes when, one a second at most for each reason, and none is forgotten.
func TestTheNumbersOfRefusalsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var all Sampler
		now := time.Unix(1e9, 0)
		came, said, last := map[admission.Reason]int64{}, map[admission.Reason]int64{}, map[admission.Reason]time.Time{}
		note := func(reason admission.Reason) {
			came[reason]++
			count, due := all.Count(reason, now)
			if !due {
				return
			}
			said[reason] += count
			if now.Sub(last[reason]) < sampleEvery {
				r.Fatalf("%s is told again after %s", reason, now.Sub(last[reason]))
			}
			last[reason] = now
		}
		for range rapid.IntRange(1, 100).Draw(r, "refusals") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*sampleEvery)).Draw(r, "pause")))
			note(rapid.SampledFrom([]admission.Reason{admission.ReasonLimited, admission.ReasonPaused}).Draw(r, "reason"))
		}
		now = now.Add(sampleEvery)
		for reason := range came {
			if note(reason); came[reason] != said[reason] {
				r.Fatalf("%d of %d are told as %s", said[reason], came[reason], reason)
			}
		}
	})
}
