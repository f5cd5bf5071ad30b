package scheduler_test

import (
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
)

// TestAllLiveSchedulersAreListed: those that run, of which one holds the timer lease, and none that has ended.
func TestAllLiveSchedulersAreListed(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	listed := func() (live, holders int) {
		all, err := store.Schedulers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if !s.AliveUntil.IsZero() {
				live++
			}
			if !s.LeaseEnd.IsZero() {
				holders++
			}
		}
		return live, holders
	}
	stop := run(t, store, scheduler.Config{})
	for range 2 {
		run(t, store, scheduler.Config{})
	}
	await(t, "three schedulers, one of them with the lease", func() bool {
		live, holders := listed()
		return live == 3 && holders == 1
	})
	stop()
	if live, _ := listed(); live != 2 {
		t.Errorf("%d live after one has ended", live)
	}
}
