package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestSpilledJobsComeBackUpToTheBound: they begin below the low-water mark and go on to the bound, also where that is more than a call
// moves. They once stopped at the mark, until as much had ended again.
func TestSpilledJobsComeBackUpToTheBound(t *testing.T) {
	t.Parallel()
	const most, low, spilled = 300, 50, 400
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
		Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour,
		Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: most, MaxSpilled: spilled, LowWater: low},
	}}}))
	jobs := make([]admission.Job, most+spilled)
	for i := range jobs {
		jobs[i] = mail("acme", fmt.Sprint("job-", i))
	}
	y.admitAt(1, jobs...)
	y.register(1)
	for range most * (100 - low) / 100 {
		y.read(1)
		for id := range y.tokens {
			y.finish(id, store.Finish{Outcome: store.Complete})
			delete(y.tokens, id)
		}
	}
	y.promoteAll()
	census, err := y.store.Census(t.Context())
	check(t, err)
	if census.Waiting+census.Ready != most {
		t.Errorf("after the depth has fallen to the mark: %+v", census)
	}
}

// TestTheOldestSpilledJobComesBackFirst.
func TestTheOldestSpilledJobComesBackFirst(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Overflows: []store.TenantOverflow{{
		Tenant: "acme", Queue: "mail", Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 5},
	}}}))
	for _, id := range []string{"a", "b", "c", "d"} {
		check(t, y.offerAt(1, mail("acme", id)).Err())
	}
	y.register(1)
	y.read(1)
	y.finish("a", store.Finish{Outcome: store.Complete}) // which leaves room for one, and a slot
	for id, want := range map[string]admission.Place{"a": store.PlaceEnded, "b": admission.PlaceReady, "c": admission.PlaceSpilled, "d": admission.PlaceSpilled} {
		if got := y.look(id).Place; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}
