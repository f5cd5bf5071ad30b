package producer_test

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store/redisstore"
)

// TestThePolicyBoundsTheRunsOfAJob: 25 without one, and what it says for a queue. A job that does not say gets no more.
func TestThePolicyBoundsTheRunsOfAJob(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	rules := policy.Default()
	rules.Queues = map[string]policy.Queue{"few": {MostAttempts: 3}, "many": {MostAttempts: 255}}
	p, err := producer.New(s, producer.Config{Policy: &rules})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		queue    string
		asks     int
		gets     int
		complain string
	}{
		{"mail", 25, 25, ""},
		{"mail", 0, 5, ""},
		{"mail", 26, 0, "invalid max attempts 26: allowed is 1 to 25 runs, by most_attempts of queue mail in the policy"},
		{"few", 0, 3, ""},
		{"few", 4, 0, "invalid max attempts 4: allowed is 1 to 3 runs, by most_attempts of queue few in the policy"},
		{"many", 255, 255, ""},
	} {
		job := admission.NewJob("acme", row.queue, "send", nil)
		job.MaxAttempts = row.asks
		verdict, err := p.Enqueue(t.Context(), job)
		if row.complain != "" {
			if !errors.Is(err, admission.ErrInvalid) || err.Error() != row.complain {
				t.Errorf("%s, %d: got %v", row.queue, row.asks, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s, %d: got %v", row.queue, row.asks, err)
			continue
		}
		sight, err := s.Look(t.Context(), admission.Key{Tenant: "acme", ID: verdict.ID})
		if err != nil || sight.Record.Job.MaxAttempts != row.gets {
			t.Errorf("%s, %d: it gets %d, %v", row.queue, row.asks, sight.Record.Job.MaxAttempts, err)
		}
	}
}
