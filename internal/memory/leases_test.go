package memory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestALeaseThatIsBeingTakenBackIsOver: what a worker holds is taken back as far as a call has moves. Between two such calls it is told that its lease
// is lost: it runs what is others' by now. Registering anew, with fewer slots as a drain does, brings the lease back as little.
func TestALeaseThatIsBeingTakenBackIsOver(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const jobs = 100
	p.register("w", mailPool, jobs)
	for at := 0; at < jobs; at += store.MaxBatchJobs {
		var some []admission.Job
		for i := at; i < min(jobs, at+store.MaxBatchJobs); i++ {
			some = append(some, mail("acme", fmt.Sprint("j", i)))
		}
		p.same("admit", func(s store.Partition) any { return replied(s.Admit(p.ctx, 0, candidates(nil, some...))) })
	}
	if read := p.take("w", mailPool, jobs); len(read[0]) != jobs {
		t.Fatalf("%d jobs", len(read[0]))
	}
	promote := func() store.Promotion {
		done, _ := p.same("promote", func(s store.Partition) any {
			done, err := s.PromoteAfter(p.ctx, store.LeapSilence, "s", time.Second)
			return replied(done, err)
		}).(reply).Values[0].(store.Promotion)
		return done
	}
	held := func() int {
		workers, _ := p.same("workers", func(s store.Partition) any { return replied(s.Workers(p.ctx)) }).(reply).Values[0].([]store.WorkerState)
		if len(workers) == 0 {
			return 0
		}
		return workers[0].Held
	}
	lost := func() {
		t.Helper()
		p.same("heartbeat", func(s store.Partition) any {
			beat, err := s.Heartbeat(p.ctx, "w", time.Minute, "")
			if !errors.Is(err, admission.ErrLeaseLost) {
				t.Errorf("a heartbeat is answered %+v, %v", beat, err)
			}
			return replied(beat, err)
		})
		p.same("registration", func(s store.Partition) any {
			r, err := s.Registration(p.ctx, mailPool.ID(), "w")
			if !errors.Is(err, admission.ErrLeaseLost) {
				t.Errorf("it is registered as %+v, %v", r, err)
			}
			return replied(r, err)
		})
	}
	p.move(time.Minute + time.Millisecond)
	promote()
	if n := held(); n == 0 || n == jobs {
		t.Fatalf("%d of %d jobs are held", n, jobs)
	}
	lost()
	p.register("w", mailPool, 50)
	lost()
	for range 5 {
		promote()
	}
	if n := held(); n != 0 {
		t.Errorf("%d jobs are held", n)
	}
	lost()
}
