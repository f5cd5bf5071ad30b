package account_test

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// seldomFinishRows are what a worker asks of Redis for jobs that have something of their own, or under settings that most
// have not.
func seldomFinishRows() []row {
	return []row{
		{"finish of a job, one of a tenant with a weight is dispatched", "finish: fill, weights", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{Weights: []store.TenantWeight{{Class: admission.High, Tenant: tenantName(0), Weight: 2}}})
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job, one of a tenant whose record names a tier is dispatched", "finish: fill, weights", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{TierWeights: []store.TierWeight{{Class: admission.High, Tier: "gold", Weight: 2}}})
			for i := range tenants {
				_, err := s.store.PutRecord(s.Context(), store.RecordEdit{Tenant: tenantName(i), Policy: 1, Text: []byte(`{"tier":"gold"}`)})
				s.check(err)
			}
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job, one of a tenant whose record has a cap is dispatched", "finish: any_capped, fill, recorded_cap", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{})
			for i := range tenants {
				_, err := s.store.PutRecord(s.Context(), store.RecordEdit{Tenant: tenantName(i), Policy: 1, Text: []byte(`{"max_running":1000}`)})
				s.check(err)
			}
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job beside records with caps, one of a tenant without is dispatched", "finish: any_capped, fill, tenants_gates", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{})
			_, err := s.store.PutRecord(s.Context(), store.RecordEdit{Tenant: "another", Policy: 1, Text: []byte(`{"max_running":1000}`)})
			s.check(err)
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job, one under a rate is dispatched", "finish: fill, gate_pass, gate_wake", 1, func(s *site) func() func() {
			caps := make([]store.Cap, tenants)
			for i := range caps {
				caps[i] = store.Cap{Gate: store.TenantRateGate(tenantName(i)), Rate: admission.PerSecond(1_000_000)}
			}
			s.putPolicy(store.PolicyUpdate{Caps: caps})
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job, one of a tenant whose record has a cap in the queue is dispatched", "finish: any_capped, fill, gate_pass", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{})
			for i := range tenants {
				_, err := s.store.PutRecord(s.Context(), store.RecordEdit{Tenant: tenantName(i), Policy: 1, Text: []byte(`{"queues":{"mail":{"max_running":1000}}}`)})
				s.check(err)
			}
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job, one under the rate of its tenant's record is dispatched", "finish: fill, gate_pass, gate_wake", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{})
			for i := range tenants {
				_, err := s.store.PutRecord(s.Context(), store.RecordEdit{Tenant: tenantName(i), Policy: 1, Text: []byte(`{"dispatch":{"tokens":1000000,"per":"1s"}}`)})
				s.check(err)
			}
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job, one out of two lanes is dispatched", "finish: fill, lane_popped", 1, func(s *site) func() func() {
			s.fillSlots()
			var jobs []admission.Job
			for range 3 * mostCalls { // The lane of those with deadlines goes first, and lasts.
				dated := s.urgent(0)
				dated.Deadline = time.Now().Add(time.Minute)
				jobs = append(jobs, dated, s.urgent(0))
			}
			s.enqueue(jobs...)
			return func() func() {
				ended := completed(s.read(1))
				return func() { s.end(ended, store.EndedDone) }
			}
		}},
		{"finish of a job with a result", "finish: complete", 1, func(s *site) func() func() {
			return s.finishes(1, 0, s.each(func(f *store.Finish) { f.Result, f.KeepResult = payload, time.Minute }), store.EndedDone)
		}},
		{"finish of a dead letter", "finish: dead_letter", 1, func(s *site) func() func() {
			return s.finishes(1, 0, s.each(func(f *store.Finish) { f.Outcome, f.Reason, f.Text = store.Kill, "invalid", "no such city" }), store.EndedDead)
		}},
		{"finish of a job that is handed back", "finish: job_return, place, fill", 1, func(s *site) func() func() {
			return s.finishes(1, 0, s.each(func(f *store.Finish) { f.Outcome = store.Release }), store.EndedReleased)
		}},
		{"finish of a job that is no longer the worker's", "finish: take_held", 1, func(s *site) func() func() {
			s.register(1)
			s.enqueue(s.urgent(0))
			lost := completed(s.read(1))
			s.end(lost, store.EndedDone)
			return func() func() {
				return func() { s.end(lost, store.EndedLost) }
			}
		}},
		{"a suspect begins", "start", 1, func(s *site) func() func() {
			return func() func() {
				s.empty()
				keys := redisstore.Keys(s.store)
				s.check(s.aside.Del(s.Context(), keys.Started(), keys.Base()+"begun").Err()) // Of the round before: it is no suspect in truth.
				s.enqueue(s.urgent(0))
				l := s.read(1)[0]
				return func() {
					s.check(s.store.Partitions()[0].Started(s.Context(), pool.ID(), worker, l.Token, admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}))
				}
			}
		}},
		{"report of a downstream's calls", "breaker: report", 1, func(s *site) func() func() {
			defaults, err := breaker.Config{}.Complete()
			s.check(err)
			sequence := uint64(0)
			return func() func() {
				sequence++
				report := store.Outcomes{Downstream: "api", Config: defaults}
				report.Sequence, report.Counts = sequence, breaker.Counts{Successes: 10}
				return func() {
					_, _, err := s.store.Partitions()[0].ReportOutcomes(s.Context(), store.Reporter{Name: worker}, []store.Outcomes{report})
					s.check(err)
				}
			}
		}},
	}
}

// each returns the ends of jobs, changed.
func (s *site) each(change func(*store.Finish)) func([]store.Lease) []store.Finish {
	return func(leases []store.Lease) []store.Finish {
		out := completed(leases)
		for i := range out {
			change(&out[i])
		}
		return out
	}
}
