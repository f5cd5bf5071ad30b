//go:build unix

package outbox_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/pgtest"
)

// BenchmarkRelay moves 20,000 rows of 1,000 tenants.
func BenchmarkRelay(b *testing.B) {
	bench := newBench(b, pgtest.Start(b))
	const rows, tenants = 20_000, 1000
	for b.Loop() {
		b.StopTimer()
		all := make([]admission.Job, rows)
		for i := range all {
			all[i] = job("")
			all[i].Tenant = fmt.Sprint("t", i%tenants)
		}
		bench.put(b, true, all...)
		b.StartTimer()
		bench.once(b)
	}
	b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
	bench.expect(b, 0, 0, 0)
}
