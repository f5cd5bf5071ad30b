package examples_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
)

//snippet:begin fake

// Service signs people up.
type Service struct{ Jobs headgate.Enqueuer } // a *headgate.Client in production

func (s Service) SignUp(ctx context.Context, to string) error {
	_, err := s.Jobs.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: Welcome{To: to}})
	return err
}

// fake keeps what is enqueued. EnqueueBatch is not called.
type fake struct {
	headgate.Enqueuer
	jobs []headgate.Job
}

func (f *fake) Enqueue(_ context.Context, job headgate.Job) (headgate.Receipt, error) {
	f.jobs = append(f.jobs, job)
	return headgate.Receipt{ID: "1"}, nil
}

func TestWhoSignsUpIsWelcomed(t *testing.T) {
	jobs := &fake{}
	if err := (Service{jobs}).SignUp(t.Context(), "ada@example.com"); err != nil {
		t.Fatal(err)
	}
	if len(jobs.jobs) != 1 || jobs.jobs[0].Args != (Welcome{To: "ada@example.com"}) {
		t.Errorf("enqueued %+v", jobs.jobs)
	}
}

//snippet:end

//snippet:begin whole

func TestAWelcomeIsSentThoughTheServerWasDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		sent := 0
		down := true
		w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
		headgate.Handle(w, func(ctx context.Context, job *headgate.Run[Welcome]) error {
			if down {
				return errors.New("the server is down")
			}
			sent++
			return nil
		})
		if err := (Service{hg}).SignUp(t.Context(), "ada@example.com"); err != nil {
			t.Fatal(err)
		}
		headgatetest.RequireEnqueued(t, hg, Welcome{To: "ada@example.com"})
		hg.Drain() // It fails, and waits for its next attempt.
		down = false
		hg.Advance(time.Minute)
		if sent != 1 {
			t.Errorf("sent %d times", sent)
		}
	})
}

//snippet:end
