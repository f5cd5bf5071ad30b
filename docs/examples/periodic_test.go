package examples_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
)

// Invoices are those of a month.
type Invoices struct{}

func (Invoices) Kind() string { return "invoices" }

// invoices enqueues invoices at six in the morning.
func invoices(ctx context.Context, hg *headgate.Client) error {
	//snippet:begin periodic
	return hg.RunPeriodic(ctx, headgate.PeriodicJob{ // until ctx ends; an error says what is wrong with a spec
		Name: "invoices", Spec: "CRON_TZ=Europe/Berlin 0 6 * * 1-5", Missed: headgate.MissedOnce,
		Job: headgate.Job{Tenant: "acme", Queue: "report", Args: Invoices{}},
	})
	//snippet:end
}

func TestPeriodicJobsRunUntilTheCtxEnds(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	check(t, invoices(ctx, open(t)))
}
