package laws_test

import (
	"math"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestIdleTenantsCostNothing asserts L12: a hundred jobs take as many commands of Redis where ten thousand other tenants
// have been seen as where ten have: when nothing waits, so that nobody is remembered, and when a tenant waits all the
// time, so that the others keep their tags. Where virtual time passes kept tags, a call removes sixteen in one command,
// and a tenant that comes back may remove its own.
func TestIdleTenantsCostNothing(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		kept, passed bool
		more         int64
	}{
		"nobody is remembered":     {},
		"all keep their tags":      {kept: true},
		"virtual time passes them": {kept: true, passed: true, more: 2 * idleCalls},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			few, many := costOfIdle(t, 10, row.kept, row.passed), costOfIdle(t, 10_000, row.kept, row.passed)
			t.Logf("commands: %d beside 10 idle tenants, %d beside 10,000", few, many)
			if many < few || many > few+row.more {
				t.Errorf("law L12: %d commands beside 10 idle tenants, %d beside 10,000", few, many)
			}
		})
	}
}

// idleCalls is the number of jobs whose commands are counted.
const idleCalls = 100

// costOfIdle returns the commands of jobs beside so many idle tenants. Tags are kept while a tenant waits: the great
// one's first job is so costly that its second stands behind everybody else's, as long as the room is never free.
func costOfIdle(t *testing.T, idle int, kept, passed bool) int64 {
	t.Helper()
	s := newSite(t, redistest.Start(t, redistest.Options{}))
	classes := admission.DefaultClasses()
	if kept {
		for range 2 {
			great := s.job("great", "mail", 0, classes)
			great.Job.Cost = admission.MaxCost
			s.admit(great)
		}
	}
	s.register("w", mailPool, 1, longLease)
	s.admit(s.job("first", "mail", 0, classes))
	for n := 0; n < idle; {
		var jobs []store.Candidate
		for ; n < idle && len(jobs) < store.MaxBatchJobs; n++ {
			jobs = append(jobs, s.job(tenantName(n), "mail", 0, classes))
		}
		s.admit(jobs...)
		if n == len(jobs) {
			s.register("w", mailPool, n, longLease) // Two of them wait from now on.
		} else {
			s.finishReady(len(jobs))
		}
	}
	for !kept && s.finishReady(store.MaxBatchJobs) > 0 {
	}
	if n, err := s.client.ZCard(s.Context(), s.key("idle:0:mail")).Result(); err != nil || kept != (n >= int64(idle)-1) {
		t.Fatalf("%d tags are kept of %d tenants: %v", n, idle, err)
	}
	tenants := idleCalls
	if passed {
		tenants = 5 // They come back, and move the virtual time.
	}
	s.admit(s.job("warm", "mail", 0, classes)) // From now on ids have ended, beside few as beside many.
	s.finishReady(1)
	before := s.commands()
	for i := range idleCalls {
		s.admit(s.job("x"+tenantName(i%tenants), "mail", 0, classes))
		s.finishReady(1)
	}
	cost := s.commands() - before
	s.census()
	return cost
}

// finishReady completes some of what is ready and returns how many it were.
func (s *site) finishReady(count int) int {
	s.Helper()
	leases := s.read("w", mailPool, count)
	s.finish(mailPool, leases, complete)
	return len(leases)
}

// TestWaitingTenantsCostTheSame asserts L12: a job dispatched from a backlog of ten thousand tenants takes as many
// commands of Redis as one from a backlog of ten, within a tenth.
func TestWaitingTenantsCostTheSame(t *testing.T) {
	t.Parallel()
	for name, jobs := range map[string]int{"one job each": 1, "two jobs each": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			few, many := costOfWaiting(t, 10, 1000*jobs), costOfWaiting(t, 10_000, jobs)
			t.Logf("commands a job: %.3f of 10 tenants, %.3f of 10,000", few, many)
			if math.Abs(many/few-1) > 0.1 {
				t.Errorf("law L12: %.3f commands a job of 10 waiting tenants, %.3f of 10,000", few, many)
			}
		})
	}
}

// costOfWaiting returns the commands of a job that is read and finished from a backlog.
func costOfWaiting(t *testing.T, tenants, jobs int) float64 {
	t.Helper()
	s := newSite(t, redistest.Start(t, redistest.Options{}))
	classes := admission.DefaultClasses()
	for range jobs {
		var all []store.Candidate
		for i := range tenants {
			all = append(all, s.job(tenantName(i), "mail", i%len(classes), classes))
		}
		s.admit(all...)
	}
	const batch, calls = 16, 100
	s.register("w", mailPool, batch, longLease)
	before := s.commands()
	for range calls {
		s.finishReady(batch)
	}
	return float64(s.commands()-before) / (batch * calls)
}
