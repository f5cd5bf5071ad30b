package account_test

import (
	"time"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
)

// timerRows are what workers and schedulers ask of Redis by time.
func timerRows() []row {
	return []row{
		{"heartbeat of a worker", "heartbeat", 1, func(s *site) func() func() {
			return func() func() {
				return func() {
					_, err := s.store.Partitions()[0].Heartbeat(s.Context(), worker, time.Hour, "")
					s.check(err)
				}
			}
		}},
		{"the same, of one that tells how busy it is", "heartbeat: load", 1, func(s *site) func() func() {
			s.putPolicy(store.PolicyUpdate{Load: 5 * time.Second})
			told := load.Sample{Use: load.Use{CPU: .5, Memory: .5}, Queues: map[string]load.Runs{"mail": {Running: 1}}}.Text()
			return func() func() {
				return func() {
					_, err := s.store.Partitions()[0].Heartbeat(s.Context(), worker, time.Hour, told)
					s.check(err)
				}
			}
		}},
		{"promote, nothing is due", "promote", 1, func(s *site) func() func() {
			return func() func() { return s.promotes(0) }
		}},
		{"promote, a retry is due, a slot is free", "promote: later_promote, return, fill", 1, func(s *site) func() func() {
			return s.retries(1)
		}},
		{"promote, 32 retries are due", "promote: later_promote, return, fill", store.MaxBatchJobs / 2, func(s *site) func() func() {
			return s.retries(store.MaxBatchJobs / 2)
		}},
	}
}

// promotes fails unless so many moves are made.
func (s *site) promotes(moves int) func() {
	return func() {
		p, err := s.store.Partitions()[0].Promote(s.Context(), "scheduler-1", time.Minute)
		if s.check(err); p.Moved != moves {
			s.Fatalf("%+v, want %d moves", p, moves)
		}
	}
}

// retries lets so many jobs fail that come back at once.
func (s *site) retries(jobs int) func() func() {
	s.register(jobs)
	return func() func() {
		s.empty()
		batch := s.batch()[:jobs]
		for i := range batch {
			batch[i].MaxAttempts = 10
		}
		s.enqueue(batch...)
		ended := completed(s.read(jobs))
		for i := range ended {
			ended[i].Outcome = store.Retry
		}
		s.end(ended, store.EndedRetried)
		return s.promotes(2 * jobs)
	}
}
