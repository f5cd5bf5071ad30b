package laws_test

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// TestKeptTagsGrantNoCredit asserts L7 and L12 where virtual time leaps over more kept tags than a call forgets: who
// comes back then is served from the present virtual time on, and the passed tags are forgotten all the same.
func TestKeptTagsGrantNoCredit(t *testing.T) {
	t.Parallel()
	const guests, cost, backlog = 40, 100, 150
	s := newSite(t, redistest.Shared(t))
	classes := admission.DefaultClasses()
	for i := range guests {
		s.admit(s.job(tenantName(i), "mail", 0, classes))
	}
	for range 4 {
		j := s.job("dear", "mail", 0, classes)
		j.Job.Cost = cost
		s.admit(j)
	}
	s.register("w", mailPool, guests+1, longLease) // All guests run and keep tags of 1, and the first of the dear jobs.
	held := s.read("w", mailPool, guests+1)
	s.finish(mailPool, held[:1], complete) // The second one runs, at 100.

	back := tenantName(9) // Of equal tags those that are first by name are forgotten first.
	for range backlog {
		s.admit(s.job(back, "mail", 0, classes))
	}
	w := s.watch(mailPool)
	w.next()
	s.register("more", mailPool, backlog+1, longLease)
	s.fillUp(guests + 1 + backlog + 1)
	lead := 0
	for _, d := range w.next() {
		if d.tenant == "dear" {
			break
		}
		lead++
	}
	if lead > cost+1 {
		t.Errorf("law L7: %s came back and got %d tokens before one job of cost %d that waited all the time", back, lead, cost)
	}
	if kept := s.size("idle:0:mail"); kept > 1 {
		t.Errorf("law L12: %d tags are kept, and all but that of %s are passed", kept, back)
	}
}
