package limiter

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// BenchmarkChecksBesideEdits is a limiter of 1,000 tenants, each of whom is asked for once a second, while records of 10,000 others are edited, and what part of the
// checks it answers by itself.
func BenchmarkChecksBesideEdits(b *testing.B) {
	const tenants, others, warming, tick = 1000, 10_000, 3000, 5 * time.Millisecond
	for _, edits := range []int{0, 2, 100} {
		b.Run(strconv.Itoa(edits)+" edits a second", func(b *testing.B) {
			s := open(b, redistest.Shared(b).Client(b))
			p := eachTenant(1, admission.PerSecond(100_000))
			p.TenantRecords = true
			put(b, s, p)
			l := start(b, s, Config{Timeout: patient})
			began, asked, edited, leased, warm := time.Now(), 0, 0, 0, uint64(0)
			for b.Loop() {
				for range int(tick / time.Millisecond) {
					v := ask(b, l, Request{Tenant: "tenant-" + strconv.Itoa(asked%tenants)})
					if asked++; asked > warming && v.Source == Leased {
						leased++
					}
				}
				for ; float64(edited) < time.Since(began).Seconds()*float64(edits); edited++ {
					editRecord(b, s, "other-"+strconv.Itoa(edited%others), []string{shutRecord, openRecord}[edited/others%2])
				}
				if asked == warming {
					warm = l.Stats().Calls
				}
				<-time.After(time.Until(began.Add(time.Duration(asked) * time.Millisecond)))
			}
			if measured := float64(asked - warming); measured > 0 {
				b.ReportMetric(100*float64(leased)/measured, "%-by-lease")
				b.ReportMetric(float64(edited)/time.Since(began).Seconds(), "edits/s")
				b.ReportMetric(float64(l.Stats().Calls-warm)/measured*1000, "calls/s")
			}
		})
	}
}
