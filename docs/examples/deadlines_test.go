package examples_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestAJobCanBeLateOrForLater(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	//snippet:begin deadline
	_, err := hg.Enqueue(ctx, headgate.Job{
		Tenant: "acme", Queue: "mail", Args: Welcome{To: "ada@example.com"},
		Priority: headgate.High,
		Deadline: time.Now().Add(5 * time.Minute), // the latest start: later it is of no use
		Timeout:  20 * time.Second,                // of a run
	})
	//snippet:end
	check(t, err)
	//snippet:begin later
	_, err = hg.Enqueue(ctx, headgate.Job{
		Tenant: "acme", Queue: "mail", Args: Welcome{To: "ada@example.com"},
		Delay:  24 * time.Hour, // or RunAt
		Unique: headgate.Unique{Key: "reminder-ada"},
	})
	//snippet:end
	check(t, err)
}
