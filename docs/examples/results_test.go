package examples_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Sum is what is added up.
type Sum struct{ Of []int }

func (Sum) Kind() string { return "sum" }

func TestAResultIsAwaited(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"math": 1}})
	//snippet:begin result
	headgate.Handle(w, func(_ context.Context, job *headgate.Run[Sum]) error {
		total := 0
		for _, n := range job.Args.Of {
			total += n
		}
		return job.SetResult(total, time.Hour)
	})
	//snippet:end
	work(t, w)
	total, err := add(ctx, hg, 1, 2, 39)
	if err != nil || total != 42 {
		t.Errorf("%d, %v", total, err)
	}
}

// add has a worker add numbers up.
func add(ctx context.Context, hg *headgate.Client, numbers ...int) (int, error) {
	//snippet:begin await
	receipt, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "math", Args: Sum{Of: numbers}})
	if err != nil {
		return 0, err
	}
	return headgate.Await[int](ctx, hg, headgate.Key{Tenant: "acme", ID: receipt.ID})
	//snippet:end
}
