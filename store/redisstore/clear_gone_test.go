package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestAClearedJobWithoutItsRecordIsCounted: a backlog is cleared of which records are gone, in lanes and kept aside. What has one is
// cancelled, the others are counted under a name of their own, and other tenants' jobs run.
func TestAClearedJobWithoutItsRecordIsCounted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		overflow store.Overflow
		draw     func(j *admission.Job, i int)
	}{
		"one lane":      {},
		"several lanes": {draw: func(j *admission.Job, i int) { j.Downstream = fmt.Sprint("api-", i%2) }},
		"dated":         {draw: func(j *admission.Job, _ int) { j.Deadline = time.UnixMicro(ahead()).Add(time.Hour) }},
		"bounded":       {overflow: store.Overflow{Policy: store.DropOldest, MaxJobs: 6}},
		"spilled":       {overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 100, LowWater: 100}},
		"spilled, put off": {
			overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 100, LowWater: 100},
			draw: func(j *admission.Job, i int) {
				if i > 0 {
					j.Delay = time.Minute
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newEdge(t)
			check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
				Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxDead: 100, Overflow: row.overflow,
			}}}))
			const jobs = 6
			for i := range jobs {
				j := mail("acme", fmt.Sprint("job-", i))
				if row.draw != nil {
					row.draw(&j, i)
				}
				y.admitAt(1, j)
			}
			y.admitAt(1, mail("bolt", "other"))
			gone := []string{"acme:job-1", "acme:job-4", "acme:job-5"}
			if n, err := y.client.HDel(t.Context(), y.store.Keys().Jobs(), gone...).Result(); n != int64(len(gone)) || err != nil {
				t.Fatalf("%d records taken away: %v", n, err)
			}
			cancelled, more, err := y.store.ClearTenant(t.Context(), "acme", "mail", store.Intervention{Author: "ada"})
			if cancelled != jobs-len(gone) || more || err != nil {
				t.Errorf("%d cancelled, more %t, %v", cancelled, more, err)
			}
			c, err := y.store.Census(t.Context())
			check(t, err)
			if c.Left["cancelled"] != jobs-int64(len(gone)) || c.Left["record_gone"] != int64(len(gone)) || c.Live != 1 || !c.Conserved() {
				t.Errorf("got %+v", c)
			}
			base := y.store.Keys().Base()
			left := y.client.Exists(t.Context(), base+"old:acme:mail", base+"spill:acme:mail", base+"starts").Val()
			for _, depth := range y.client.HMGet(t.Context(), base+"depth", "acme:mail", "acme:").Val() {
				if left > 0 || depth != nil {
					t.Errorf("%d keys of its backlog are left, and a depth of %v", left, depth)
				}
			}
			y.register(4)
			if leases := y.take(); len(leases) != 1 || leases[0].Job.Tenant != "bolt" {
				t.Errorf("workers have %d jobs, want the other tenant's", len(leases))
			}
		})
	}
}

// TestALaneThatSomebodyEmptiedHoldsNobodyUp: its tenant is forgotten where it would be served, and where it is cleared.
func TestALaneThatSomebodyEmptiedHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for name, downstreams := range map[string][]string{"the only one": {""}, "one of two": {"", "api"}} {
		for _, cleared := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", cleared ", cleared), func(t *testing.T) {
				t.Parallel()
				y := newEdge(t)
				for _, downstream := range downstreams {
					j := mail("acme", "job of "+downstream)
					j.ID, j.Downstream = "j"+downstream, downstream
					y.admit(j)
				}
				y.admit(mail("bolt", "other"))
				lane := y.store.Keys().Base() + "lane:1:mail:acme:n"
				if n := y.client.Del(t.Context(), lane).Val(); n != 1 {
					t.Fatalf("%d lanes are gone", n)
				}
				want := len(downstreams)
				if cleared {
					n, more, err := y.store.ClearTenant(t.Context(), "acme", "mail", store.Intervention{Author: "ada"})
					if n != len(downstreams)-1 || more || err != nil {
						t.Errorf("%d cancelled, more %t, %v", n, more, err)
					}
					want = 1
				}
				y.register(4)
				if leases := y.take(); len(leases) != want {
					t.Errorf("workers have %d jobs, want %d", len(leases), want)
				}
				if left := y.client.HLen(t.Context(), y.store.Keys().Base()+"ten:1:mail").Val() + y.client.ZCard(t.Context(), y.store.Keys().Base()+"act:1:mail").Val(); left != 0 {
					t.Errorf("%d tenants are left", left)
				}
			})
		}
	}
}

// TestAGroupThatABrokenCallLeftIsTakenOver: a register that broke off has made a pool's consumer group, and nothing else of it. The next
// makes the pool; what is no stream is refused as ever.
func TestAGroupThatABrokenCallLeftIsTakenOver(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	ready := y.store.Keys().Ready(yardPool.ID())
	check(t, y.client.Set(t.Context(), ready, "no stream", 0).Err())
	if _, err := y.store.Register(t.Context(), "w1", yardPool, 1, time.Minute); !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("in the place of a stream: %v", err)
	}
	check(t, y.client.Del(t.Context(), ready).Err())
	check(t, y.client.XGroupCreateMkStream(t.Context(), ready, "g", "0").Err())
	y.admit(mail("acme", "a"))
	y.register(1)
	if leases := y.take(); len(leases) != 1 {
		t.Errorf("%d jobs are read, want 1", len(leases))
	}
}
