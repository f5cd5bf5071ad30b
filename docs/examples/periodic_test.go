package examples_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// invoices enqueues invoices at six in the morning.
func invoices(ctx context.Context, s store.Deployment) error {
	p, err := producer.New(s, producer.Config{})
	if err != nil {
		return err
	}
	//snippet:begin periodic
	periodic, err := producer.NewPeriodic(p, producer.PeriodicConfig{Jobs: []producer.PeriodicJob{{
		Name: "invoices", Spec: "CRON_TZ=Europe/Berlin 0 6 * * 1-5", Missed: producer.MissedOnce,
		Job: admission.NewJob("acme", "report", "invoices", nil),
	}}})
	if err != nil {
		return err // a spec that is none, too
	}
	return periodic.Run(ctx) // until ctx ends
	//snippet:end
}

func TestPeriodicJobsRunUntilTheCtxEnds(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	check(t, invoices(ctx, openStore(t)))
}
