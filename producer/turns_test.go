package producer

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// waitingTicket is one of a tenant with so many jobs of a payload each.
func waitingTicket(tenant string, jobs, payload int) *ticket {
	entries := make([]entry, jobs)
	for i := range entries {
		entries[i].job = admission.Job{Tenant: tenant, Payload: make([]byte, payload)}
	}
	return &ticket{entries: entries, bytes: jobs * payload, deadline: time.Now().Add(time.Hour), done: make(chan struct{}, 1)}
}

// TestTenantsTakeTurns walks at random through tickets that come, go in turn and leave, beside lists that are searched.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q turns
		var ring []string // of the tenants that wait, the next first
		lists := map[string][]*ticket{}
		all := []*ticket{}
		drop := func(x *ticket) {
			tenant := x.tenant()
			lists[tenant] = slices.DeleteFunc(lists[tenant], func(o *ticket) bool { return o == x })
			all = slices.DeleteFunc(all, func(o *ticket) bool { return o == x })
			if len(lists[tenant]) == 0 {
				ring = slices.DeleteFunc(ring, func(o string) bool { return o == tenant })
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				tenant := strconv.Itoa(rapid.IntRange(0, 4).Draw(t, "tenant"))
				x := waitingTicket(tenant, rapid.IntRange(1, 3).Draw(t, "jobs"), 10)
				if len(lists[tenant]) == 0 {
					ring = append(ring, tenant)
				}
				lists[tenant], all = append(lists[tenant], x), append(all, x)
				q.push(x)
			},
			"pop": func(t *rapid.T) {
				if len(ring) == 0 {
					t.Skip("nobody waits")
				}
				tenant := ring[0]
				want := lists[tenant][0]
				ring = append(ring[1:], tenant)
				drop(want)
				if got := q.pop(); got != want {
					t.Fatalf("it was the turn of %s, not of %s", want.tenant(), got.tenant())
				}
			},
			"leave": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("nobody waits")
				}
				x := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				drop(x)
				q.remove(x)
			},
			"": func(t *rapid.T) {
				want := sums{tickets: len(all)}
				for _, x := range all {
					want.jobs, want.bytes = want.jobs+len(x.entries), want.bytes+x.bytes
				}
				if q.sums != want || len(q.of) != len(ring) || (q.head() == nil) != (len(all) == 0) {
					t.Fatalf("%+v of %d tenants wait, want %+v of %d", q.sums, len(q.of), want, len(ring))
				}
				if len(ring) > 0 && q.head() != lists[ring[0]][0] {
					t.Fatal("the head is another")
				}
			},
		})
	})
}

// TestLeavingLooksAtItsNeighboursAlone: the ticket cannot be found from either end of the line, and leaves all the same,
// without an allocation.
func TestLeavingLooksAtItsNeighboursAlone(t *testing.T) {
	var q turns
	const n = 1001
	tickets := make([]*ticket, n)
	for i := range tickets {
		tickets[i] = waitingTicket("acme", 1, 0)
		q.push(tickets[i])
	}
	at := n / 2
	tickets[at-2].behind, tickets[at+2].ahead = nil, nil // Whoever walks there falls off.
	if allocations := testing.AllocsPerRun(1, func() {
		if x := tickets[at]; x.waits != nil {
			q.remove(x)
		}
	}); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
	if q.tickets != n-1 || tickets[at-1].behind != tickets[at+1] || tickets[at+1].ahead != tickets[at-1] {
		t.Errorf("%d tickets wait, and the neighbours do not know each other", q.tickets)
	}
}
