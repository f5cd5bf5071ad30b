package buckets_test

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
)

func BenchmarkTake(b *testing.B) {
	limits := [admission.Levels]admission.Limit{
		admission.PerSecond(1e9), admission.PerSecond(1e9), admission.PerSecond(1e9), admission.PerSecond(1e9),
	}
	full := buckets.AppendPath(nil, limits, "acme", "mail", admission.High)
	limits[admission.LevelPriority] = admission.Limit{Tokens: 1, Per: admission.MaxLimitPer, Burst: 1}
	refusing := buckets.AppendPath(nil, limits, "acme", "mail", admission.Low)

	b.Run("levels=4/verdict=admitted", func(b *testing.B) {
		var set buckets.Set
		now := buckets.Instant(0)
		b.ReportAllocs()
		for b.Loop() {
			now++
			if set.Take(now, 0, full, 1).Decision != admission.Admitted {
				b.Fatal("refused")
			}
		}
	})
	b.Run("levels=4/verdict=refused", func(b *testing.B) {
		var set buckets.Set
		set.Take(0, 0, refusing, 1)
		b.ReportAllocs()
		for b.Loop() {
			if set.Take(1, 0, refusing, 1).Decision != admission.Refused {
				b.Fatal("admitted")
			}
		}
	})
}
