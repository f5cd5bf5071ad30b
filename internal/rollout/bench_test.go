package rollout

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// BenchmarkForesee replays an hour of as many scopes as are counted.
func BenchmarkForesee(b *testing.B) {
	demand := map[admission.Scope]int64{admission.Global: 1_000_000}
	for n := range store.TopScopes / 2 {
		demand[admission.Scope(fmt.Sprint("t", n))] = 2000
		demand[admission.Scope(fmt.Sprint("t", n, ":mail"))] = 1000
	}
	var hour []store.Recorded
	for minute := range 60 {
		hour = append(hour, recorded(minute, demand))
	}
	own := limits(admission.PerSecond(10_000).WithBurst(1000), map[admission.Scope]admission.Limit{"t1": admission.PerSecond(5)}, nil)
	compiled := prepare(b, own)
	for b.Loop() {
		foresee(hour, compiled, compiled)
	}
}
