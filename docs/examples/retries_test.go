package examples_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
)

// The errors of a mail server.
var (
	errNoSuchBox = errors.New("550 no such mailbox")
	errBusy      = errors.New("451 try again later")
	errClosed    = errors.New("421 closed for maintenance")
)

// send fails by the name of who is written to.
func send(_ context.Context, to string) error {
	switch to {
	case "nobody":
		return errNoSuchBox
	case "busy":
		return errBusy
	case "closed":
		return errClosed
	}
	return nil
}

//snippet:begin handler

func handle(ctx context.Context, job *headgate.Run[Welcome]) error {
	err := send(ctx, job.Args.To)
	switch {
	case errors.Is(err, errNoSuchBox):
		return headgate.Discard(err) // it will never succeed: a dead letter now
	case errors.Is(err, errBusy):
		return headgate.RetryAfter(10*time.Minute, err) // they said when
	case errors.Is(err, errClosed):
		return headgate.Snooze(time.Minute) // not now: no attempt is counted
	}
	return err // nil: done; else tried again after the backoff
}

//snippet:end

func TestAHandlerSaysWhatBecomesOfItsJob(t *testing.T) {
	t.Parallel()
	//snippet:begin unit
	err := handle(t.Context(), &headgate.Run[Welcome]{Args: Welcome{To: "nobody"}})
	if !headgate.IsDiscard(err) {
		t.Errorf("a mailbox that is not there: %v", err)
	}
	//snippet:end
	if err := handle(t.Context(), &headgate.Run[Welcome]{Args: Welcome{To: "ada"}}); err != nil {
		t.Error(err)
	}
	if d, ok := headgate.IsRetryAfter(handle(t.Context(), &headgate.Run[Welcome]{Args: Welcome{To: "busy"}})); !ok || d != 10*time.Minute {
		t.Error(d, ok)
	}
	if _, ok := headgate.IsSnooze(handle(t.Context(), &headgate.Run[Welcome]{Args: Welcome{To: "closed"}})); !ok {
		t.Error("no snooze")
	}
}

func TestDeadLettersComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		ctx := t.Context()
		w := hg.Worker(headgate.WorkerConfig{
			Queues: headgate.Weights{"mail": 1},
			//snippet:begin backoff
			Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * 30 * time.Second },
			//snippet:end
		})
		headgate.Handle(w, handle)
		_, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: Welcome{To: "nobody"}, ID: "order-17"})
		check(t, err)
		hg.Drain()
		dead := headgate.Filter{Queue: "mail", Place: headgate.PlaceDead}
		for job, err := range hg.Inspect().Jobs(ctx, dead) {
			check(t, err)
			if job.Key.ID != "order-17" {
				t.Errorf("%+v", job)
			}
		}
		//snippet:begin redrive
		n, err := hg.Operate("ada").Redrive(ctx, dead, "the mailbox is there now", false) // headgate.DryRun only counts
		//snippet:end
		if n != 1 || err != nil {
			t.Error(fmt.Sprint(n, err))
		}
	})
}
