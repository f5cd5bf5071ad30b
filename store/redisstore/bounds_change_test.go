package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestWhatIsAsideComesBackWhenItsBoundChanges: a bound is raised or taken away, by the policy or by the tenant's record, while nothing that counts leaves.
func TestWhatIsAsideComesBackWhenItsBoundChanges(t *testing.T) {
	t.Parallel()
	narrow := store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 100, LowWater: 100}
	wide := narrow
	wide.MaxJobs = 100
	for name, after := range map[string]struct {
		bound  store.Overflow
		record string
	}{
		"raised":             {bound: wide},
		"taken away":         {},
		"raised by a record": {bound: narrow, record: `{"overflow":{"policy":"none"},"queues":{"mail":{"overflow":{"policy":"none"}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := &goneYard{yard: newYard(t), now: ahead()}
			y.pass(0)
			put := func(version int64, o store.Overflow) {
				t.Helper()
				check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Expected: version - 1, Version: version, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
					Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxDead: 100, KeepDead: time.Hour, Overflow: o,
				}}}))
			}
			put(1, narrow)
			later := mail("acme", "later")
			later.Delay = 300 * 24 * time.Hour
			y.admitAt(1, later)
			for i := range 5 {
				y.admitAt(1, mail("acme", fmt.Sprint("job-", i)))
			}
			if c, err := y.store.Census(t.Context()); err != nil || c.Spilled != 5 {
				t.Fatalf("%+v, %v", c, err)
			}
			if put(2, after.bound); after.record != "" {
				y.promoteAll() // The edit had them look, for which there was no reason.
				_, err := y.store.PutRecord(t.Context(), store.RecordEdit{Tenant: "acme", Text: []byte(after.record), Policy: 2, Bounded: true})
				check(t, err)
			}
			y.register(8)
			y.pass(time.Second)
			y.promoteAll()
			if c, err := y.store.Census(t.Context()); err != nil || c.Spilled != 0 || c.Ready != 5 {
				t.Errorf("%d jobs are aside for no bound, %d are with workers that have 8 slots, %v", c.Spilled, c.Ready, err)
			}
		})
	}
}
