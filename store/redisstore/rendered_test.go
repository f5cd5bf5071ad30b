package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestTenantsShareByWhatTheirJobsHaveCost plays the walks of fairqueue's testdata/walks/rendered.txt with Redis: who starts after whom, where jobs tell
// as they end that they have cost something else than they reserved.
func TestTenantsShareByWhatTheirJobsHaveCost(t *testing.T) {
	t.Parallel()
	t.Run("more", func(t *testing.T) {
		t.Parallel()
		y := newTurns(t)
		y.place("more", 1, 4)
		y.place("one", 1, 8)
		y.register(1)
		y.expect("more one one one one more one one", 4, 1, 1, 1, 1, 4, 1, 1)
	})
	t.Run("less", func(t *testing.T) {
		t.Parallel()
		y := newTurns(t)
		y.place("less", 10, 6)
		y.place("one", 1, 6)
		y.register(1)
		y.expect("less one less one less one", 1, 1, 1, 1, 1, 1)
	})
	t.Run("no credit beyond one job", func(t *testing.T) {
		t.Parallel()
		y := newTurns(t)
		y.place("less", 10, 16)
		y.register(5)
		y.end(y.read(5), 10)
		y.place("late", 1, 4)
		y.end(y.read(5), 0)
		if got := y.names(y.read(5)); got != "less less late late late" {
			t.Errorf("who began: %s", got)
		}
	})
	t.Run("more, of a tenant without another job", func(t *testing.T) {
		t.Parallel()
		y := newTurns(t)
		y.place("more", 1, 1)
		y.place("one", 1, 8)
		y.register(1)
		y.expect("more", 4)
		y.place("more", 1, 2)
		y.expect("one one one one one more", 1, 1, 1, 1, 1, 1)
	})
	t.Run("less, of a tenant without another job", func(t *testing.T) {
		t.Parallel()
		y := newTurns(t)
		y.place("less", 10, 1)
		y.place("one", 1, 8)
		y.register(1)
		y.expect("less", 1)
		y.place("less", 10, 1)
		y.expect("one one less one", 1, 1, 1, 1)
	})
}

type turnsYard struct {
	*yard

	jobs int
}

func newTurns(t *testing.T) *turnsYard {
	t.Helper()
	return &turnsYard{yard: newYard(t)}
}

// place admits n jobs of a tenant.
func (y *turnsYard) place(tenant string, cost admission.Tokens, n int) {
	y.tb.Helper()
	for range n {
		y.jobs++
		j := mail(tenant, fmt.Sprintf("%s-%d", tenant, y.jobs))
		j.Cost = cost
		y.admit(j)
	}
}

func (y *turnsYard) read(n int) []store.Lease {
	y.tb.Helper()
	leases, err := y.store.Read(y.tb.Context(), "w1", yardPool.ID(), n, -1, false)
	check(y.tb, err)
	return leases
}

func (y *turnsYard) names(leases []store.Lease) string {
	var names []string
	for i := range leases {
		names = append(names, leases[i].Job.Tenant)
	}
	return strings.Join(names, " ")
}

// end ends jobs that have cost so much each.
func (y *turnsYard) end(leases []store.Lease, cost admission.Tokens) {
	y.tb.Helper()
	var ends []store.Finish
	for i := range leases {
		f := leases[i].Finish(store.Complete)
		f.Spent = &store.Spent{Cost: cost, Class: admission.Medium, Limits: &[admission.Levels]admission.Limit{}}
		ends = append(ends, f)
	}
	_, _, err := y.store.Finish(y.tb.Context(), yardPool.ID(), "w1", ends)
	check(y.tb, err)
}

// expect holds whose jobs begin one after the other, where each has cost so much as it ends.
func (y *turnsYard) expect(want string, costs ...admission.Tokens) {
	y.tb.Helper()
	var began []string
	for _, cost := range costs {
		leases := y.read(1)
		began = append(began, y.names(leases))
		y.end(leases, cost)
	}
	if got := strings.Join(began, " "); got != want {
		y.tb.Errorf("who began: %s, want %s", got, want)
	}
}
