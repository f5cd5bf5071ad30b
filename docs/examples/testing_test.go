package examples_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
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
