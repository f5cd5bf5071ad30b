//go:build unix

package outboxtest

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
)

// BenchmarkRelay moves 20,000 rows of 1,000 tenants.
func BenchmarkRelay(b *testing.B, d *Database) {
	b.Helper()
	bench := NewBench(b, d)
	const rows, tenants = 20_000, 1000
	for b.Loop() {
		b.StopTimer()
		all := make([]admission.Job, rows)
		for i := range all {
			all[i] = Job("")
			all[i].Tenant = fmt.Sprint("t", i%tenants)
		}
		bench.Put(b, true, all...)
		b.StartTimer()
		bench.Once(b)
	}
	b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
	bench.Expect(b, 0, 0, 0)
}
