package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestVirtualTimeBeginsAnewWhereNobodyWaits: a class has served so much that a small cost of a tenant of great weight is nothing beside its virtual time. When its last job
// has gone to a worker that is over, and weights count again.
func TestVirtualTimeBeginsAnewWhereNobodyWaits(t *testing.T) {
	t.Parallel()
	y := &goneYard{yard: newYard(t), now: ahead()}
	y.pass(0)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
		Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxDead: 100, KeepDead: time.Hour,
	}}, Weights: []store.TenantWeight{{Class: "medium", Tenant: "gold", Weight: 1000}, {Class: "medium", Weight: 1}}}))
	field := []byte{'Q'} // turn, left, pace, stamp, and of each class its virtual time and how many jobs wait
	for _, number := range []float64{1, 3, 0, 0, 0, 0, 2e13, 0, 0, 0} {
		field = binary.LittleEndian.AppendUint64(field, math.Float64bits(number))
	}
	check(t, y.client.HSet(t.Context(), y.store.Keys().State(), "q:mail", field).Err())
	y.admitAt(1, mail("acme", "before")) // It waits, for there is no worker.
	y.register(1)
	for _, lease := range y.take() {
		y.end(lease, store.Complete)
	}
	batch := func(tenant string, n int) {
		jobs := make([]admission.Job, n)
		for i := range jobs {
			jobs[i] = mail(tenant, fmt.Sprint("job-", i))
		}
		y.admitAt(1, jobs...)
	}
	batch("gold", 50)
	batch("tin", 5)
	served := map[string]int{}
	for range 45 {
		for _, lease := range y.take() {
			served[lease.Job.Tenant]++
			y.end(lease, store.Complete)
		}
	}
	if served["tin"] != 1 {
		t.Errorf("of a tenant with a thousandth of the other's weight %d jobs ran beside %d", served["tin"], served["gold"])
	}
}
