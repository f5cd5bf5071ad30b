package crash_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestWorkersDrainTogether asserts L4 and L12 where all workers of a pool give up their slots before the first of them
// has ended its registration: that one closes the pool, and the others, or the end of their leases, find it closed.
func TestWorkersDrainTogether(t *testing.T) {
	t.Parallel()
	d := newDesk(t, redistest.Shared(t))
	for _, name := range []string{"first", "second", "third"} {
		d.register(name, 8, 50*time.Millisecond)
		d.register(name, 0, 50*time.Millisecond) // As a worker begins to drain.
	}
	for _, name := range []string{"first", "second"} {
		if more, err := d.store.Partitions()[0].Reclaim(t.Context(), name); more || err != nil {
			t.Errorf("reclaim %s: more %t, %v", name, more, err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); d.client.HLen(t.Context(), redisstore.Keys(d.store).Workers()).Val() > 0; {
		d.pause(d.promote()) // The third is never heard of again.
		if time.Now().After(deadline) {
			t.Fatal("a registration outlives its pool and its lease")
		}
	}
	d.census()
}
