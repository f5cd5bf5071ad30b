package lua

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
)

// TestQueuesAreBounded: names of queues are clients' to choose, and each leaves a field in the state.
func TestQueuesAreBounded(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	limits := &[headgate.Levels]headgate.Limit{}
	admit := func(first, n int) []headgate.Verdict {
		jobs := make([]Candidate, n)
		for i := range jobs {
			j := headgate.NewJob("acme", fmt.Sprintf("queue-%d", first+i), "t", nil)
			j.ID = fmt.Sprintf("j%d", first+i)
			jobs[i] = Candidate{Job: &j, Class: 1, Limits: limits}
		}
		verdicts, err := s.Admit(t.Context(), 0, jobs)
		check(t, err)
		return verdicts
	}
	const most = 4096
	for first := 0; first < most; first += 64 {
		for _, v := range admit(first, 64) {
			check(t, v.Err())
		}
	}
	err = admit(most, 1)[0].Err()
	if !errors.Is(err, headgate.ErrQueuesFull) || err.Error() != "job refused: there are as many queues as the store keeps, and this one would be new" {
		t.Errorf("queue %d: %v", most+1, err)
	}
	j := headgate.NewJob("acme", "queue-7", "t", nil)
	j.ID = "again"
	verdicts, err := s.Admit(t.Context(), 0, []Candidate{{Job: &j, Class: 1, Limits: limits}})
	check(t, err)
	check(t, verdicts[0].Err())
}
