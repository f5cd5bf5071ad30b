package ledger

import (
	"time"

	"github.com/headgate/headgate/admission"
)

// Timeline is one tenant's run in slices of equal length: how many of its jobs were asked for, refused and started in
// each.
type Timeline struct {
	Asked, Refused, Started []int
}

// Timelines returns each tenant's timeline from a moment on, in n slices.
func (l *Ledger) Timelines(from time.Time, slice time.Duration, n int) map[string]Timeline {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]Timeline, len(l.mu.tenants))
	for tenant := range l.mu.tenants {
		all[tenant] = Timeline{Asked: make([]int, n), Refused: make([]int, n), Started: make([]int, n)}
	}
	count := func(slices []int, at time.Time) {
		if i := at.Sub(from) / slice; at.After(from) && int(i) < n {
			slices[i]++
		}
	}
	for i := range l.mu.records {
		r := &l.mu.records[i]
		t := all[r.Tenant]
		count(t.Asked, r.asked)
		if r.decided && r.verdict.Decision == admission.Refused {
			count(t.Refused, r.asked)
		}
		if r.hasStarted() {
			count(t.Started, r.started)
		}
	}
	return all
}

// WaitOf returns the waits of a tenant's jobs that were asked for between two moments and have started.
func (l *Ledger) WaitOf(tenant string, from, to time.Time) Waits {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waits []time.Duration
	for i := range l.mu.records {
		if r := &l.mu.records[i]; r.Tenant == tenant && r.hasStarted() && !r.asked.Before(from) && r.asked.Before(to) {
			waits = append(waits, r.wait)
		}
	}
	return waitsOf(waits)
}
