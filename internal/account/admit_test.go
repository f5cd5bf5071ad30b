package account_test

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// admitRows are calls of Enqueue and EnqueueBatch.
func admitRows() []row {
	return []row{
		{"Enqueue, a slot is free", "admit: straight", 1, func(s *site) func() func() {
			return s.enqueues(admission.PlaceReady, "")
		}},
		{"the same, the first in a tenth of a second", "admit: memory_left, straight", 1, func(s *site) func() func() {
			s.forgetful = true
			return s.enqueues(admission.PlaceReady, "")
		}},
		{"Enqueue with a downstream", "admit: straight, holds", 1, func(s *site) func() func() {
			return s.enqueues(admission.PlaceReady, "api")
		}},
		{"Enqueue, none is, the tenant waits already", "admit: place, lane, fill finds no room", 1, func(s *site) func() func() {
			s.fillSlots()
			s.enqueue(s.urgent(0))
			return s.enqueues(admission.PlaceWaiting, "")
		}},
		{"Enqueue, none is, the tenant's first ever", "admit: place, lane, fill", 1, func(s *site) func() func() {
			s.fillSlots()
			next := 0
			return func() func() {
				next++
				return s.enqueueAlone(s.urgent(next), admission.PlaceWaiting)
			}
		}},
		{"Enqueue, a tenant at its cap", "admit: place, fill parks it by gate", 1, func(s *site) func() func() {
			_, _, err := s.store.SetGate(s.Context(), store.Gate{Name: store.TenantGate(store.Every), Limit: 1})
			s.check(err)
			s.register(2 * tenants)
			next := 0
			return func() func() {
				next++
				s.enqueue(s.urgent(next))
				return s.enqueueAlone(s.urgent(next), admission.PlaceWaiting)
			}
		}},
		{"Enqueue, its downstream's breaker is open", "admit: place, fill parks the lane by gate", 1, func(s *site) func() func() {
			_, err := s.store.ForceBreaker(s.Context(), "api", breaker.Open, 0, store.Intervention{Reason: "the account"})
			s.check(err)
			s.register(8)
			next := 0
			return func() func() {
				next++
				s.empty()
				s.enqueue(s.urgent(next)) // Its buckets are there.
				s.empty()
				j := s.urgent(next)
				j.Downstream = "api"
				return s.enqueueAlone(j, admission.PlaceWaiting)
			}
		}},
		{"Enqueue, refused by a bucket", "admit: path, refusal_of", 1, (*site).limited},
		{"Enqueue, a duplicate", "admit: known", 1, func(s *site) func() func() {
			s.fillSlots()
			j := s.urgent(0)
			s.enqueue(j)
			return func() func() {
				return func() {
					v, err := s.producer.Enqueue(s.Context(), j)
					if s.check(err); v.Decision != admission.Duplicate {
						s.Fatalf("the verdict is %v", v)
					}
				}
			}
		}},
		{"EnqueueBatch of 64, slots are free", "admit: place, fill", store.MaxBatchJobs, func(s *site) func() func() {
			s.register(store.MaxBatchJobs)
			return func() func() {
				s.empty()
				jobs := s.batch()
				return func() { s.enqueue(jobs...) }
			}
		}},
		{"EnqueueBatch of 64, none is", "admit: place", store.MaxBatchJobs, func(s *site) func() func() {
			s.backlog(11 * tenants) // A position has two digits, whoever counts how many calls.
			return func() func() {
				jobs := s.batch()
				return func() { s.enqueue(jobs...) }
			}
		}},
	}
}

// urgent returns a job of the ith tenant in the first class. Others are looked for first in two calls of six, when it is theirs
// turn.
func (s *site) urgent(i int) admission.Job {
	j := s.job(i)
	j.Priority = admission.High
	return j
}

// limited is about jobs of a tenant that has no tokens left.
func (s *site) limited() func() func() {
	s.Helper()
	p := limits()
	p.Tenants = map[string]policy.Tenant{tenantName(0): {Limit: &admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}}}
	var err error
	s.producer, err = producer.New(s.store, producer.Config{Policy: &p, Timeout: time.Minute, Uncounted: true})
	s.check(err)
	s.enqueue(s.urgent(0))
	return s.refusals("")
}

// enqueues is about the first tenant's jobs.
func (s *site) enqueues(want admission.Place, downstream string) func() func() {
	s.Helper()
	return func() func() {
		if want == admission.PlaceReady {
			s.empty()
		}
		j := s.urgent(0)
		j.Downstream = downstream
		return s.enqueueAlone(j, want)
	}
}

// enqueueAlone is the call, which fails unless the job comes to this place.
func (s *site) enqueueAlone(j admission.Job, want admission.Place) func() {
	return func() {
		v, err := s.producer.Enqueue(s.Context(), j)
		if s.check(err); v.Decision != admission.Admitted || v.Place != want {
			s.Fatalf("the verdict is %+v, want %v", v, want)
		}
	}
}

// fillSlots leaves no slot free.
func (s *site) fillSlots() {
	s.Helper()
	s.register(1)
	s.enqueue(s.urgent(tenants - 1))
}

// backlog fills the slots and lets so many jobs of all tenants wait for each tenant.
func (s *site) backlog(jobs int) {
	s.Helper()
	for range 1 + (jobs+store.MaxBatchJobs-1)/store.MaxBatchJobs {
		s.enqueue(s.batch()...)
	}
}
