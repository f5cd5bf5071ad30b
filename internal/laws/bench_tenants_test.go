package laws_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// BenchmarkTenants reports what a job costs Redis, from its admission to its end, where 10 to 100,000 tenants have two jobs
// each waiting, which take turns, and where a hundred have and 10 to 100,000 others are idle, whose tags Redis keeps.
//
//	go test ./internal/laws -run '^$' -bench Tenants -benchtime 5000x
func BenchmarkTenants(b *testing.B) {
	var rows []*beside
	for _, tenants := range []int{10, 1000, 100_000} {
		rows = append(rows, newWaiting(b, tenants), newIdle(b, tenants))
	}
	compare(b, (*beside).run, rows...)
}

// newWaiting lets so many tenants wait with two jobs each.
func newWaiting(b *testing.B, tenants int) *beside {
	b.Helper()
	s := newBeside(b, fmt.Sprintf("%d_waiting", tenants), bystanders{})
	s.tenants = tenants
	for n := 0; n < 2*tenants; n += store.MaxBatchJobs {
		s.admit(s.open(min(store.MaxBatchJobs, 2*tenants-n))...)
	}
	return s
}

// newIdle lets a hundred tenants wait, and so many others have had a job, so dear that their tags stay ahead of virtual time.
func newIdle(b *testing.B, tenants int) *beside {
	b.Helper()
	s := newWaiting(b, 100)
	s.name = fmt.Sprintf("%d_idle", tenants)
	for n := 0; n < tenants; n += besideBatch {
		jobs := make([]store.Candidate, min(besideBatch, tenants-n))
		for i := range jobs {
			jobs[i] = s.job(tenantName(n+i), "mail", "")
			jobs[i].Job.Cost = admission.MaxCost / 10
		}
		s.admit(jobs...)
		s.finishOpen()
	}
	s.run(1000) // Those that wait among them have had it, too.
	kept, err := s.client.ZCard(b.Context(), redisstore.Keys(s.store).Base()+"idle:0:mail").Result()
	s.check(err)
	if kept != int64(tenants) {
		b.Fatalf("%d tags are kept of %d tenants", kept, tenants)
	}
	return s
}
