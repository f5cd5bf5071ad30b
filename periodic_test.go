package headgate_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestATickIsEnqueuedOnce: by however many processes that run the same list.
func TestATickIsEnqueuedOnce(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
	ticks := make(chan string, 16)
	headgate.Handle(w, func(_ context.Context, job *headgate.Run[welcome]) error {
		ticks <- job.ID
		if job.Args.To != "all" || job.Tenant != "acme" {
			t.Errorf("%+v", job)
		}
		return nil
	})
	run(t, w)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			if err := hg.RunPeriodic(ctx, headgate.PeriodicJob{
				Name: "digest", Spec: "@every 1s", Job: headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{To: "all"}}, Missed: headgate.MissedSkip,
			}); err != nil {
				t.Errorf("after ctx has ended: %v", err)
			}
		})
	}
	defer running.Wait()
	defer stop()
	seen := map[string]bool{}
	for range 3 {
		select {
		case id := <-ticks:
			if seen[id] || !strings.HasPrefix(id, "digest@") {
				t.Errorf("%s after %v", id, seen)
			}
			seen[id] = true
		case <-time.After(time.Minute):
			t.Fatalf("after %v nothing comes", seen)
		}
	}
}

// TestAPeriodicJobSaysAllThatIsWrong before anything is enqueued.
func TestAPeriodicJobSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	good := headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{}}
	own := good
	own.ID = "mine"
	err := hg.RunPeriodic(t.Context(),
		headgate.PeriodicJob{Name: "a b", Spec: "@hourly", Job: good},
		headgate.PeriodicJob{Name: "often", Spec: "every hour", Job: good},
		headgate.PeriodicJob{Name: "nothing", Spec: "@hourly", Job: headgate.Job{Tenant: "a b", Queue: "mail"}},
		headgate.PeriodicJob{Name: "own", Spec: "@hourly", Job: own},
		headgate.PeriodicJob{Name: "late", Spec: "@hourly", Job: good, Missed: "perhaps"})
	for _, want := range []string{"Jobs[0].Name", "Jobs[1].Spec", "Jobs[2].Job: invalid args nil", `Jobs[2].Job: invalid tenant "a b"`, "Jobs[3].Job with an ID", "Jobs[4].Missed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said: %v", want, err)
		}
	}
	if err := hg.RunPeriodic(t.Context()); err == nil || !strings.Contains(err.Error(), "1 to 1000 jobs") {
		t.Errorf("no job: %v", err)
	}
}
