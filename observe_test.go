package headgate_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/headgatetest"
	"github.com/headgate/headgate/worker"
)

// TestObserversHearWhatComesAfterThem: each of several, whichever functions they have, by a worker that was there before. One that panics keeps
// nothing from the others, nor the job.
func TestObserversHearWhatComesAfterThem(t *testing.T) {
	t.Parallel()
	hg := headgatetest.New(t)
	headgate.Handle(hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}}), func(context.Context, *headgate.Run[welcome]) error { return nil })
	enqueue := func(id string) {
		_, err := hg.Enqueue(t.Context(), headgate.Job{ID: id, Tenant: "acme", Queue: "mail", Args: welcome{}})
		check(t, err)
	}
	ended := make(chan string, 3) // Drain sees that a job has ended in Redis, which is before its worker tells.
	tell := func(e worker.Event) { ended <- e.Key.ID }
	hg.Inspect().Observe(nil, tell, nil)
	enqueue("unheard")
	hg.Drain()
	<-ended
	var mu sync.Mutex
	var heard []string
	hear := func(what, id string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, what+" "+id)
	}
	hg.Inspect().Observe(nil, nil, nil)
	hg.Inspect().Observe(func(admission.Job, headgate.Verdict, error) { panic("an observer") }, nil, nil)
	hg.Inspect().Observe(func(job admission.Job, v headgate.Verdict, err error) { hear(v.Decision.String(), job.ID) }, nil, nil)
	hg.Inspect().Observe(nil, func(e worker.Event) { hear(string(e.Outcome), e.Key.ID) }, nil)
	hg.Inspect().Observe(nil, tell, nil)
	enqueue("heard")
	hg.Drain()
	_, _ = <-ended, <-ended // by the first and the last of the observers
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(heard) // A job may have been done before the producer tells that it is in.
	if !slices.Equal(heard, []string{"admitted heard", "completed heard"}) {
		t.Errorf("heard %q", heard)
	}
}
