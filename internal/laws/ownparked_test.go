package laws_test

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestOwnParkedJobsCostNothing asserts that the jobs of a tenant which has others behind the gate of a downstream take as
// many commands as those of one that has none: out of a backlog, and when each finds a free slot, where a call reads
// what else its tenants have in each class, in one command whether they run, in one their lanes, and its end whether any runs.
func TestOwnParkedJobsCostNothing(t *testing.T) {
	t.Parallel()
	gate := store.DownstreamGate("api")
	var backlog, straight [2]float64
	for i, parked := range []bool{false, true} {
		c := &crowded{site: newSite(t, redistest.Start(t, redistest.Options{})), pool: mailPool}
		c.setGate(gate, 0)
		classes, lanes := admission.DefaultClasses(), 0
		var jobs []store.Candidate
		for k := 0; parked && k < openTenants*len(classes); k++ {
			j := c.job("x"+tenantName(k%openTenants), "mail", k%len(classes), classes)
			j.Job.Downstream = "api"
			jobs, lanes = append(jobs, j), lanes+1
		}
		c.admit(append(jobs, c.openJobs(openTenants*openJobs)...)...)
		c.register("w", mailPool, crowdedSlots, longLease)
		for c.parked(string(gate)) < lanes {
			c.finishReady(1)
		}
		backlog[i] = c.costOfOpen()
		for c.finishReady(crowdedSlots) > 0 {
		}
		straight[i] = c.costOfStraight()
	}
	t.Logf("commands a job out of a backlog %.2f beside own parked jobs, %.2f beside none; straight through %.2f and %.2f", backlog[1], backlog[0], straight[1], straight[0])
	if backlog[1] > backlog[0]*1.01 {
		t.Errorf("%.2f commands a job out of a backlog beside own parked jobs, %.2f beside none", backlog[1], backlog[0])
	}
	if most := straight[0] + float64(len(admission.DefaultClasses())+3)/crowdedSlots; straight[1] > most {
		t.Errorf("%.2f commands a job straight through beside own parked jobs, want at most %.2f beside %.2f where there are none", straight[1], most, straight[0])
	}
}

// openJobs are jobs that no gate stops.
func (c *crowded) openJobs(n int) []store.Candidate {
	classes := admission.DefaultClasses()
	jobs := make([]store.Candidate, n)
	for i := range jobs {
		jobs[i] = c.job("x"+tenantName(i%openTenants), "mail", i%len(classes), classes)
	}
	return jobs
}

// costOfStraight returns the commands of a job that finds a free slot, from its admission to its end.
func (c *crowded) costOfStraight() float64 {
	c.Helper()
	const calls = 60
	before := c.commands()
	for range calls {
		c.admit(c.openJobs(crowdedSlots)...)
		if n := c.finishReady(crowdedSlots); n != crowdedSlots {
			c.Fatalf("%d jobs are ready, want %d", n, crowdedSlots)
		}
	}
	return float64(c.commands()-before) / (calls * crowdedSlots)
}
