package account_test

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store"
)

// checkRows are checks of a limiter that leases nothing.
func checkRows() []row {
	return []row{
		{"Limiter.Check, granted", "grant: begin, path", 1, func(s *site) func() func() {
			return s.checks(admission.Admitted)
		}},
		{"Limiter.Check, refused", "grant: path, refusal_of", 1, func(s *site) func() func() {
			return s.checks(admission.Refused)
		}},
		{"64 checks that share a call", "grant: begin, path", store.MaxBatchJobs, func(s *site) func() func() {
			g := store.Grant{Member: "limiter-1", Lease: time.Second, Questions: make([]store.Question, store.MaxBatchJobs)}
			for i := range g.Questions {
				g.Questions[i] = store.Question{
					Tenant: tenantName(i), Queue: queue, Class: admission.Medium, Cost: 1,
					Limits: [admission.Levels]admission.Limit{ample, ample, ample, ample},
				}
			}
			return func() func() {
				return func() {
					_, err := s.store.Partitions()[0].Grant(s.Context(), &g)
					s.check(err)
				}
			}
		}},
	}
}

// checks asks for one tenant after the other: what a limiter knows to be refused it does not ask again.
func (s *site) checks(want admission.Decision) func() func() {
	s.Helper()
	p := limits()
	if want == admission.Refused {
		p.Tiers["standard"] = tierOf(admission.Limit{Tokens: 1, Per: time.Hour, Burst: 1})
	}
	l, err := limiter.New(s.store, limiter.Config{Policy: &p, Exact: true, Timeout: 10 * time.Second})
	s.check(err)
	next := -1
	ask := func() bool {
		v, err := l.Check(s.Context(), limiter.Request{Tenant: tenantName(next), Queue: queue, Class: admission.Medium})
		s.check(err)
		return v.Admitted
	}
	return func() func() {
		next++
		ask() // Whatever is made anew for a tenant is.
		return func() {
			if ask() != (want == admission.Admitted) {
				s.Fatalf("the check is not %v", want)
			}
		}
	}
}
