package fleet

import (
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
)

// TestFailuresOfOthersAreNotExcused: what the fleet says of one tenant explains failures that are mostly that tenant's, for a
// while, and no others.
func TestFailuresOfOthersAreNotExcused(t *testing.T) {
	t.Parallel()
	const evil, acme, globex = 7, 8, 9
	for name, row := range map[string]struct {
		seen    []uint16
		excused bool
	}{
		"all are evil's":    {[]uint16{evil, evil, evil}, true},
		"most are evil's":   {[]uint16{acme, evil, evil}, true},
		"half are":          {[]uint16{acme, evil, globex, evil}, false},
		"they are of all":   {[]uint16{acme, evil, globex}, false},
		"nothing is known":  {nil, false},
		"the older ones go": {append([]uint16{acme, acme, acme}, repeated(evil, recentOutcomes)...), true},
	} {
		g := newGuardForTest(t)
		for _, tenant := range row.seen {
			g.count(1, outcome{Counts: breaker.Counts{Failures: 1}, tenant: tenant}, nil)
		}
		if got := g.setAside([]uint16{evil}, breaker.Instant(time.Second)); got != row.excused {
			t.Errorf("%s: excused: %t", name, got)
		}
		if g.isAside(evil, 0) != row.excused || g.isAside(acme, 0) || g.isAside(evil, breaker.Instant(time.Second)) {
			t.Errorf("%s: somebody else is set aside, or for ever", name)
		}
	}
}

func repeated(tenant uint16, n int) (all []uint16) {
	for range n {
		all = append(all, tenant)
	}
	return all
}

func newGuardForTest(t *testing.T) *Guard {
	t.Helper()
	local, err := breaker.NewAt(0, breaker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g := &Guard{Name: "pay"}
	g.by.Store(&guardRules{local: local})
	return g
}
