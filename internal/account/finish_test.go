package account_test

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// finishRows are what a worker asks of Redis for its jobs.
func finishRows() []row {
	return []row{
		{"read of a job", "XREADGROUP", 1, func(s *site) func() func() {
			return func() func() {
				s.empty()
				s.enqueue(s.urgent(0))
				return func() { s.read(1) }
			}
		}},
		{"read of 64", "XREADGROUP", store.MaxBatchJobs, func(s *site) func() func() {
			s.register(store.MaxBatchJobs)
			return func() func() {
				s.empty()
				s.enqueue(s.batch()...)
				return func() { s.read(store.MaxBatchJobs) }
			}
		}},
		{"finish of a job, nothing waits", "finish, fill", 1, func(s *site) func() func() {
			return s.finishes(1, 0, completed, store.EndedDone)
		}},
		{"finish of 64, nothing waits", "finish, fill", store.MaxBatchJobs, func(s *site) func() func() {
			return s.finishes(store.MaxBatchJobs, 0, completed, store.EndedDone)
		}},
		{"finish of a job, one is dispatched", "finish, fill", 1, func(s *site) func() func() {
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of 64, 64 are dispatched", "finish, fill", store.MaxBatchJobs, func(s *site) func() func() {
			return s.finishes(store.MaxBatchJobs, 6, completed, store.EndedDone)
		}},
		{"finish of a job under a cap, one is dispatched", "finish: entry, freed, fill", 1, func(s *site) func() func() {
			_, _, err := s.store.SetGate(s.Context(), store.Gate{Name: store.TenantGate(store.Every), Limit: 10})
			s.check(err)
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job beside another tenant's cap, nothing waits", "finish: any_capped, fill", 1, func(s *site) func() func() {
			s.capAnother()
			return s.finishes(1, 0, completed, store.EndedDone)
		}},
		{"finish of a job beside another tenant's cap, one is dispatched", "finish: any_capped, fill, tenants_gates", 1, func(s *site) func() func() {
			s.capAnother()
			return s.finishes(1, 2*tenants, completed, store.EndedDone)
		}},
		{"finish of a job that failed, nothing waits", "finish: history, due", 1, func(s *site) func() func() {
			return s.finishes(1, 0, s.each(func(f *store.Finish) { f.Outcome, f.Delay, f.Text = store.Retry, time.Hour, "no answer" }), store.EndedRetried)
		}},
	}
}

// capAnother bounds a tenant that has no jobs.
func (s *site) capAnother() {
	s.Helper()
	_, _, err := s.store.SetGate(s.Context(), store.Gate{Name: store.TenantGate("another"), Limit: 10})
	s.check(err)
}

// finishes is about so many jobs at a time, with so many times as many waiting behind them.
func (s *site) finishes(jobs, waiting int, how func([]store.Lease) []store.Finish, want store.Ended) func() func() {
	s.Helper()
	s.register(jobs)
	next := func() []admission.Job {
		if jobs == 1 {
			return []admission.Job{s.urgent(s.jobs)}
		}
		return s.batch()
	}
	var backlog []admission.Job
	for range waiting {
		backlog = append(backlog, next()...)
	}
	s.enqueue(backlog...)
	return func() func() {
		s.enqueue(next()...)
		ended := how(s.read(jobs))
		return func() { s.end(ended, want) }
	}
}
