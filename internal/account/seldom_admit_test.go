package account_test

import (
	"bytes"
	"errors"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// seldomAdmitRows are calls of Enqueue with jobs that have something of their own, or under settings that most have not.
func seldomAdmitRows() []row {
	return []row{
		{"Enqueue with a deadline, no slot is free", "admit: place, due", 1, func(s *site) func() func() {
			s.fillSlots()
			return s.adorned(admission.PlaceWaiting, func(j *admission.Job) { j.Deadline = time.Now().Add(time.Hour) })
		}},
		{"Enqueue for later", "admit: job_options, due", 1, func(s *site) func() func() {
			return s.adorned(admission.PlaceLater, func(j *admission.Job) { j.Delay = time.Hour })
		}},
		{"Enqueue with a unique key", "admit: unique_refused, place, fill", 1, func(s *site) func() func() {
			return s.adorned(admission.PlaceReady, func(j *admission.Job) { j.Unique.Key = j.ID })
		}},
		{"Enqueue of 8 KiB", "admit: job_options, place, fill", 1, func(s *site) func() func() {
			large := bytes.Repeat(payload, 32)
			return s.adorned(admission.PlaceReady, func(j *admission.Job) { j.Payload = large })
		}},
		{"Enqueue, the tenant's depth is bounded", "admit: overflow, depth, place, fill", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{Overflows: []store.TenantOverflow{
				{Tenant: tenantName(0), Queue: queue, Overflow: store.Overflow{Policy: store.Reject, MaxJobs: 1000}},
			}})
			return s.adorned(admission.PlaceReady, func(*admission.Job) {})
		}},
		{"Enqueue, the queue is suspended", "admit: suspension", 1, func(s *site) func() func() {
			s.check(s.store.Suspend(s.Context(), store.QueueGate(queue), time.Hour, store.Intervention{Reason: "the account"}))
			return s.refusals("")
		}},
		{"Enqueue, enough wait for an ill downstream", "admit: parked_refusal", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{MaxParked: map[string]int{"api": 1}})
			_, err := s.store.ForceBreaker(s.Context(), "api", breaker.Open, time.Hour, store.Intervention{Reason: "the account"})
			s.check(err)
			j := s.urgent(0)
			j.Downstream = "api"
			s.enqueue(j)
			return s.refusals("api")
		}},
		{"Enqueue for an account, with a cap and a rate of each", "admit: place, fill", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{Caps: []store.Cap{
				{Gate: store.DownstreamGate("api+*"), Limit: 1000}, {Gate: store.DownstreamRateGate("api+*"), Rate: admission.PerSecond(1000).WithBurst(1000)},
			}})
			return s.adorned(admission.PlaceReady, func(j *admission.Job) { j.Downstream = "api+acme" })
		}},
		{"Enqueue of a type that has a limit, a slot is free", "admit: straight", 1, func(s *site) func() func() {
			s.limitTypes(ample)
			return s.enqueues(admission.PlaceReady, "")
		}},
		{"Enqueue, refused by the limit of its type", "admit: path, refusal_of", 1, func(s *site) func() func() {
			s.limitTypes(admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1})
			s.enqueue(s.urgent(0))
			return s.refusals("")
		}},
	}
}

// limitTypes gives the first tenant a limit of its own for each type of its jobs.
func (s *site) limitTypes(limit admission.Limit) {
	s.Helper()
	p := limits()
	p.Tenants = map[string]policy.Tenant{tenantName(0): {Queues: map[string]policy.TenantQueue{queue: {TypeLimits: map[string]admission.Limit{policy.Every: limit}}}}}
	var err error
	s.producer, err = producer.New(s.store, producer.Config{Policy: &p, Timeout: time.Minute, Uncounted: true})
	s.check(err)
}

// putPolicy stores the first version of the policy, and gives the producer the same.
func (s *site) putPolicy(u store.PolicyUpdate) {
	s.Helper()
	u.Version, u.Text, u.Window = 1, []byte("{}"), time.Minute
	s.check(s.store.PutPolicy(s.Context(), u))
	p := limits()
	p.Version = 1
	var err error
	s.producer, err = producer.New(s.store, producer.Config{Policy: &p, Timeout: time.Minute, Uncounted: true})
	s.check(err)
}

// adorned is about the first tenant's jobs, changed.
func (s *site) adorned(want admission.Place, change func(*admission.Job)) func() func() {
	return func() func() {
		if want == admission.PlaceReady {
			s.empty()
		}
		j := s.urgent(0)
		change(&j)
		return s.enqueueAlone(j, want)
	}
}

// refusals is about the first tenant's jobs, which are all refused.
func (s *site) refusals(downstream string) func() func() {
	return func() func() {
		j := s.urgent(0)
		j.Downstream = downstream
		return func() {
			if _, err := s.producer.Enqueue(s.Context(), j); !errors.As(err, new(*admission.RefusedError)) {
				s.Fatalf("the job is not refused: %v", err)
			}
		}
	}
}
