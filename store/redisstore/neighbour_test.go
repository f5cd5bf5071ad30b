package redisstore

import (
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// TestATenantAtItsBoundsGetsNoOtherRefused: whatever names of queues, downstreams, delays, sizes and unique keys two tenants offer,
// everything of a third that keeps within its bounds is admitted, and its dead letters stay.
func TestATenantAtItsBoundsGetsNoOtherRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.store.conn.Scripts = maps.Clone(lua.Scripts("", lua.SingleLayout))
	lower(t, y.store.conn.Scripts, "QUEUE_CAP, MADE_CAP, LOOKS = %d, 256, 64\n", store.MaxQueues, 12)
	lower(t, y.store.conn.Scripts, "QUEUE_CAP, MADE_CAP, LOOKS = 12, %d, 64\n", 256, 4)
	lower(t, y.store.conn.Scripts, "local LANE_CAP = %d\n", store.MaxLanes, 4)
	lower(t, y.store.conn.Scripts, "UNIQUE_BYTES = %d, 300\n", 1_000_000, 5)
	lower(t, y.store.conn.Scripts, "local DEAD_CAP = %d\n", store.MaxLetters, 12)
	y.bury("acme", "mail", "letter")
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute, Overflows: []store.TenantOverflow{{Tenant: store.Every, Overflow: store.Overflow{Policy: store.Reject, MaxJobs: 30}}},
	}))
	n, now, refusals := 0, ahead(), map[admission.Reason]int{}
	offer := func(j admission.Job) admission.Verdict {
		n++
		j.ID = fmt.Sprint("job-", n)
		return y.offerAt(1, j)
	}
	for range 3 { // What is asked for below is rare.
		rapid.Check(t, func(rt *rapid.T) {
			number := func(name string, most int) int { return rapid.IntRange(0, most).Draw(rt, name) }
			for range 20 {
				now += int64(number("us", 1_000_000))
				y.store.conn.Now = strconv.FormatInt(now, 10)
				j := mail(fmt.Sprint("evil", number("tenant", 1)), "")
				j.Queue, j.Payload = fmt.Sprint("made-up-", number("queue", 20)), make([]byte, number("bytes", 100))
				if number("calls", 1) == 0 {
					j.Downstream = fmt.Sprint("api-", number("downstream", 20))
				}
				if number("put off", 3) == 0 {
					j.Delay = time.Duration(1+number("delay", 5)) * time.Second
				}
				if number("unique", 2) == 0 {
					j.Unique = admission.Unique{Key: fmt.Sprint("k", number("key", 50)), For: time.Minute, Release: admission.ReleaseAtExpiry}
				}
				if number("deadline", 1) == 0 {
					j.Deadline = time.UnixMicro(now).Add(time.Duration(10+number("by", 3)) * time.Second)
				}
				if v := offer(j); v.Decision == admission.Refused {
					refusals[v.Reason]++
				}
				y.promoteAll()
				mine := mail("acme", "")
				mine.Queue = "acme-own"
				if v := offer(mine); v.Decision != admission.Admitted {
					rt.Fatalf("a neighbour: %v", v.Err())
				}
				_, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: fmt.Sprint("job-", n)}, store.Intervention{})
				check(t, err)
			}
			if sight := y.look("letter"); sight.Place != store.PlaceDead {
				rt.Fatalf("a neighbour's letter is %s", sight.Place)
			}
		})
	}
	for _, reason := range []admission.Reason{admission.ReasonQueues, admission.ReasonUnique} {
		if refusals[reason] == 0 {
			t.Errorf("none was refused for %s: %v", reason, refusals)
		}
	}
}
