package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// cappedYard is a yard whose policy has caps.
type cappedYard struct {
	*yard
	before *store.PolicyUpdate // the version in force, as it was stored
}

// caps puts caps of single tenants and of tiers in force, as the next version. Of the version before the editor knows what it was, so it writes what differs alone.
func (y *cappedYard) caps(version int64, caps []store.Cap, tiers ...store.TierCap) {
	y.tb.Helper()
	u := store.PolicyUpdate{
		Expected: version - 1, Version: version, Text: []byte("{}"), Window: time.Minute, Edit: fmt.Sprint("edit-", version), Caps: caps, TierCaps: tiers, Before: y.before,
	}
	check(y.tb, y.store.PutPolicy(y.tb.Context(), u))
	u.Before, y.before = nil, &u
}

// waiting admits more jobs of ann than any cap lets run.
func (y *cappedYard) waiting(version int64) {
	y.tb.Helper()
	for n := range 40 {
		y.admitAt(version, mail("ann", fmt.Sprint("ann-", n)))
	}
}

// runs fails unless so many jobs are in ready streams.
func (y *cappedYard) runs(when string, want int) {
	y.tb.Helper()
	if got := y.ready(); got != want {
		y.tb.Errorf("%s %d jobs run, want %d", when, got, want)
	}
}

// ends completes so many of them.
func (y *cappedYard) ends(n int) {
	y.tb.Helper()
	leases, err := y.store.Read(y.tb.Context(), "w1", yardPool.ID(), n, -1, false)
	check(y.tb, err)
	ends := make([]store.Finish, len(leases))
	for i, l := range leases {
		ends[i] = l.Finish(store.Complete)
	}
	_, _, err = y.store.Finish(y.tb.Context(), yardPool.ID(), "w1", ends)
	check(y.tb, err)
}

const capSlots = 10

func ofAnn(byTier bool) store.Cap {
	return store.Cap{Gate: store.TenantGate("ann"), Limit: 2, ByTier: byTier}
}

// TestTheNearestCapIsInForce: a record's own, then that which the policy has for the tenant alone, then that of the record's tier, then what the policy has by the
// tenant's tier, then that of each tenant; before and after an edit of another tenant's, and under a pause that ends.
func TestTheNearestCapIsInForce(t *testing.T) {
	t.Parallel()
	every := store.Cap{Gate: store.TenantGate(store.Every), Limit: 6}
	gold, free := store.TierCap{Tier: "gold", Limit: 3}, store.TierCap{Tier: "free", Limit: store.NoCap}
	for what, row := range map[string]struct {
		record string
		caps   []store.Cap
		want   int
	}{
		"a cap alone":                       {`{"max_running":4}`, nil, 4},
		"before that of each":               {`{"max_running":8}`, []store.Cap{every}, 8},
		"before the policy's own":           {`{"max_running":8,"limit":{"tokens":5}}`, []store.Cap{ofAnn(false)}, 8},
		"below the policy's own":            {`{"priority_weights":{"high":3},"max_running":1}`, []store.Cap{every, ofAnn(false)}, 1},
		"before that of its tier":           {`{"tier":"gold","max_running":5}`, []store.Cap{ofAnn(true)}, 5},
		"the policy's own before a tier's":  {`{"tier":"gold"}`, []store.Cap{every, ofAnn(false)}, 2},
		"that of the record's tier":         {`{"tier":"gold","priority_weights":{"max_running":9}}`, []store.Cap{every, ofAnn(true)}, 3},
		"that of the tier alone":            {`{"tier":"gold"}`, nil, 3},
		"a tier that has what each has":     {`{"tier":"tin"}`, []store.Cap{every, ofAnn(true)}, 6},
		"a tier without one":                {`{"tier":"free"}`, []store.Cap{every, ofAnn(true)}, capSlots},
		"a tier without one beside another": {`{"tier":"tin"}`, []store.Cap{ofAnn(true)}, capSlots},
		"what the policy has by its tier":   {`{"limit":{"tokens":5}}`, []store.Cap{every, ofAnn(true)}, 2},
		"a queue of an odd name":            {`{"queues":{"max_running":{"limit":{"tokens":5}}}}`, []store.Cap{every}, 6},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := &cappedYard{yard: newYard(t)}
			y.caps(1, row.caps, gold, free)
			y.give(1, "ann", row.record)
			y.register(capSlots)
			y.waiting(1)
			y.runs("at first", row.want)
			y.ends(1)
			y.runs("after one has ended", row.want)
			gates, err := y.store.Gates(t.Context())
			check(t, err)
			for _, g := range gates {
				if g.Name == store.TenantGate("ann") && g.Limit != row.want && row.want < capSlots {
					t.Errorf("its gate is told as %+v", g)
				}
			}
			y.caps(2, append(row.caps, store.Cap{Gate: store.TenantGate("zed"), Limit: 1}), gold, free)
			by := store.Intervention{Author: "ops", Reason: "test"}
			_, err = y.store.Pause(t.Context(), store.TenantGate("ann"), 0, by)
			check(t, err)
			y.ends(1)
			y.runs("paused", row.want-1)
			_, err = y.store.Pause(t.Context(), store.TenantGate("ann"), time.Hour, by)
			check(t, err)
			_, err = y.store.Unpause(t.Context(), store.TenantGate("ann"), by)
			check(t, err)
			y.runs("after the pause", row.want)
		})
	}
}

// TestARaisedCapOfARecordWakes who waits for it in the script of the edit, a lowered one takes nothing away and lets nothing more through until so few run, and
// without a record the policy's is in force.
func TestARaisedCapOfARecordWakes(t *testing.T) {
	t.Parallel()
	for what, all := range map[string][]store.Cap{"beside none": nil, "beside that of each": {{Gate: store.TenantGate(store.Every), Limit: 7}}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := &cappedYard{yard: newYard(t)}
			y.caps(1, all)
			y.register(capSlots)
			y.give(1, "ann", `{"max_running":2}`)
			y.waiting(1)
			y.runs("at first", 2)
			y.give(1, "ann", `{"max_running":5}`)
			y.runs("raised", 5)
			y.give(1, "ann", `{"max_running":4}`)
			y.ends(1)
			y.runs("lowered by one, of which one has ended,", 4)
			y.give(1, "ann", `{"max_running":2}`)
			y.ends(1)
			y.runs("lowered, with one that has ended,", 3)
			y.ends(2)
			y.runs("with as many as may run", 2)
			y.give(1, "ann", "")
			left := map[string]int{"beside none": capSlots, "beside that of each": 7}[what]
			y.runs("without a record", left)
			y.give(1, "ann", `{"max_running":2}`)
			y.ends(left - 3)
			y.runs("with a cap that has counted what ran", 3)
			y.ends(2)
			y.runs("with as many as may run again", 2)
			y.ends(1)
			y.give(1, "ann", `{"max_running":3}`)
			y.drain()
			if c, err := y.store.Census(t.Context()); err != nil || c.Live != 0 {
				t.Errorf("left over: %+v: %v", c, err)
			}
			y.give(1, "ann", "")
			if ng := y.client.HGet(t.Context(), y.store.conn.Partition.State(), "ng").Val(); all == nil && ng != "" {
				t.Errorf("after the last cap there is %q", ng)
			}
			if n := y.client.HLen(t.Context(), y.store.conn.Partition.Gates()).Val(); int(n) != len(all) {
				t.Errorf("%d gates are left", n)
			}
		})
	}
}

// TestAnEditOfATiersCapIsInForceAtOnce for tenants whose records name the tier: those that wait for it run in the script of the edit, also where the tier gets one and
// loses it, and what ran before counts. An edit is as many commands with a thousand records as with one.
func TestAnEditOfATiersCapIsInForceAtOnce(t *testing.T) {
	t.Parallel()
	cost := map[int]int64{}
	for _, others := range []int{1, 1000} {
		y := &cappedYard{yard: newYardOn(t, redistest.Start(t, redistest.Options{}).Client(t), "tiers")}
		y.caps(1, nil)
		y.register(capSlots)
		for n := range others {
			y.give(1, fmt.Sprint("other-", n), `{"tier":"gold"}`)
		}
		y.give(1, "ann", `{"tier":"gold"}`)
		gold := func(version int64, limit ...store.TierCap) {
			t.Helper()
			y.caps(version, nil, limit...)
		}
		gold(2, store.TierCap{Tier: "gold", Limit: 3})
		y.waiting(2)
		y.runs("at first", 3)
		gold(3, store.TierCap{Tier: "gold", Limit: 6})
		y.runs("raised", 6)
		gold(4, store.TierCap{Tier: "gold", Limit: 2})
		y.ends(3)
		y.runs("lowered", 3)
		y.ends(2)
		y.runs("with one that has ended", 2)
		before := commandsOf(t, y.store)
		gold(5)
		cost[others] = commandsOf(t, y.store) - before
		y.runs("without one", capSlots)
		gold(6, store.TierCap{Tier: "gold", Limit: 4})
		y.ends(4)
		y.runs("with a cap that has counted what ran", 6)
		y.ends(3)
		y.runs("with as many as may run again", 4)
		y.drain()
		if c, err := y.store.Census(t.Context()); err != nil || c.Live != 0 {
			t.Errorf("left over: %+v: %v", c, err)
		}
	}
	if cost[1] != cost[1000] {
		t.Errorf("an edit is %d commands with two records and %d with a thousand", cost[1], cost[1000])
	}
}
