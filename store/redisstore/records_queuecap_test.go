package redisstore

import (
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// inMail is a record of a cap in the queue mail.
func inMail(limit int) string { return fmt.Sprintf(`{"queues":{"mail":{"max_running":%d}}}`, limit) }

func mailCap(tenant string, limit int) store.Cap {
	return store.Cap{Gate: store.TenantQueueGate(tenant, "mail"), Limit: limit}
}

// queueCap fails unless that is the cap of ann in the queue mail that is in force; 0 is none.
func (y *cappedYard) queueCap(when string, limit int) {
	y.tb.Helper()
	gates, err := y.store.Gates(y.tb.Context())
	check(y.tb, err)
	got := 0
	for _, g := range gates {
		if g.Name == store.TenantQueueGate("ann", "mail") {
			got = g.Limit
		}
	}
	if got != limit {
		y.tb.Errorf("%s ann has a cap of %d in mail, want %d", when, got, limit)
	}
}

// noQueueCaps fails where something is left of caps in queues by records.
func (y *cappedYard) noQueueCaps() {
	y.tb.Helper()
	state := y.store.conn.Partition.State()
	if rows, n := y.client.HGetAll(y.tb.Context(), y.store.conn.Partition.QueueCaps()).Val(), y.client.HGet(y.tb.Context(), state, "rq").Val(); len(rows) > 0 || n != "" {
		y.tb.Errorf("%v are left, counted as %q", rows, n)
	}
}

// TestTheNearestCapInAQueueIsInForce: a record's own, then that which the policy has for the tenant there, then that of each tenant there; before and after an edit of
// another tenant's, and under a pause that ends. Where a record says nothing of the queue the policy's is in force.
func TestTheNearestCapInAQueueIsInForce(t *testing.T) {
	t.Parallel()
	each, own := mailCap(store.Every, 6), mailCap("ann", 2)
	for what, row := range map[string]struct {
		record string
		caps   []store.Cap
		want   int
	}{
		"a cap alone":                {inMail(4), nil, 4},
		"before that of each":        {inMail(8), []store.Cap{each}, 8},
		"before the policy's own":    {`{"queues":{"fax":{"max_running":1},"mail":{"limit":{"tokens":5},"max_running":8}}}`, []store.Cap{each, own}, 8},
		"below the policy's own":     {inMail(1), []store.Cap{own}, 1},
		"below its own over all":     {`{"max_running":5,"queues":{"mail":{"max_running":3,"overflow":{"policy":"reject","max_jobs":100}}}}`, nil, 3},
		"above its own over all":     {`{"max_running":5,"queues":{"mail":{"max_running":7}}}`, nil, 5},
		"of another queue":           {`{"queues":{"fax":{"max_running":1}}}`, []store.Cap{each, own}, 2},
		"of another, beside none":    {`{"queues":{"fax":{"max_running":1}}}`, nil, capSlots},
		"of none":                    {`{"queues":{"mail":{"max_running":0}}}`, []store.Cap{each}, 6},
		"a queue of an odd name":     {`{"queues":{"max_running":{"limit":{"tokens":5}}}}`, []store.Cap{each}, 6},
		"a type of an odd name":      {`{"queues":{"mail":{"type_limits":{"max_running":{"tokens":1}}}}}`, []store.Cap{each}, 6},
		"no number that it could be": {`{"queues":{"mail":{"max_running":"many"}}}`, []store.Cap{each}, 6},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := &cappedYard{yard: newYard(t)}
			y.caps(1, row.caps)
			y.give(1, "ann", row.record)
			y.register(capSlots)
			y.waiting(1)
			y.runs("at first", row.want)
			y.ends(1)
			y.runs("after one has ended", row.want)
			y.caps(2, append(row.caps, mailCap("zed", 1)))
			by := store.Intervention{Author: "ops", Reason: "test"}
			_, err := y.store.Pause(t.Context(), store.TenantQueueGate("ann", "mail"), 0, by)
			check(t, err)
			y.ends(1)
			y.runs("paused", row.want-1)
			_, err = y.store.Unpause(t.Context(), store.TenantQueueGate("ann", "mail"), by)
			check(t, err)
			y.runs("after the pause", row.want)
			y.give(2, "ann", "")
			y.noQueueCaps()
		})
	}
}

// TestARaisedCapInAQueueOfARecordWakes who waits for it in the script of the edit, a lowered one takes nothing away and lets nothing more through until so few run, and
// without one the policy's is in force. What ran before the first one counts.
func TestARaisedCapInAQueueOfARecordWakes(t *testing.T) {
	t.Parallel()
	for what, all := range map[string][]store.Cap{"beside none": nil, "beside that of each": {mailCap(store.Every, 7)}, "beside the policy's": {mailCap("ann", 7)}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := &cappedYard{yard: newYard(t)}
			y.caps(1, all)
			y.register(capSlots)
			y.give(1, "ann", inMail(2))
			y.waiting(1)
			y.runs("at first", 2)
			y.give(1, "ann", inMail(5))
			y.runs("raised", 5)
			y.give(1, "ann", inMail(2))
			y.ends(1)
			y.runs("lowered, with one that has ended,", 4)
			y.ends(2)
			y.runs("with as many as may run", 2)
			y.give(1, "ann", `{"max_running":9}`)
			left := map[string]int{"beside none": 9}[what]
			if left == 0 {
				left = 7
			}
			y.runs("without one there", left)
			y.give(1, "ann", `{"max_running":9,"queues":{"mail":{"max_running":2}}}`)
			y.ends(left - 3)
			y.runs("with a cap that has counted what ran", 3)
			y.ends(2)
			y.runs("with as many as may run again", 2)
			y.give(1, "ann", inMail(3))
			y.drain()
			if c, err := y.store.Census(t.Context()); err != nil || c.Live != 0 {
				t.Errorf("left over: %+v: %v", c, err)
			}
			y.give(1, "ann", "")
			y.noQueueCaps()
			if ng := y.client.HGet(t.Context(), y.store.conn.Partition.State(), "ng").Val(); all == nil && ng != "" {
				t.Errorf("after the last cap there is %q", ng)
			}
			if n := y.client.HLen(t.Context(), y.store.conn.Partition.Gates()).Val(); int(n) != len(all) {
				t.Errorf("%d gates are left", n)
			}
		})
	}
}

// TestAnEditOfThePolicyLeavesTheCapInAQueueOfARecord in force, whoever edits, and is in force itself when the record has none any more: where it came meanwhile, changed, or
// went.
func TestAnEditOfThePolicyLeavesTheCapInAQueueOfARecord(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"who knows the policy", "another process"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			y := &cappedYard{yard: newYard(t)}
			version := int64(0)
			put := func(caps ...store.Cap) {
				t.Helper()
				if version++; who == "another process" {
					y.before = nil
				}
				y.caps(version, caps)
			}
			others := []store.Cap{mailCap("bob", 2), {Gate: store.TenantGate("ann"), Limit: 100}}
			put(others...)
			two := func(limit int) string {
				return fmt.Sprintf(`{"queues":{"fax":{"max_running":5},"mail":{"max_running":%d}}}`, limit)
			}
			y.give(version, "ann", two(3))
			for _, of := range []struct {
				when string
				caps []store.Cap
				left int
			}{
				{"the policy's came", append(others[:2:2], mailCap("ann", 7)), 7},
				{"it changed", append(others[:2:2], mailCap("ann", 9)), 9},
				{"another one went", append(others[:1:1], mailCap("ann", 9)), 9},
				{"it went", others, 0},
			} {
				put(of.caps...)
				y.queueCap("after "+of.when, 3)
				stored, err := y.store.Stored(t.Context())
				check(t, err)
				if want := policies.SettingsOf(&store.PolicyUpdate{Caps: of.caps}); !maps.Equal(stored, want) {
					t.Errorf("after %s Redis has of the policy: %s", of.when, differs(stored, want))
				}
				y.give(version, "ann", two(4))
				y.queueCap("with another after "+of.when, 4)
				y.give(version, "ann", `{"queues":{"fax":{"max_running":5}}}`)
				y.queueCap("without one there after "+of.when, of.left)
				y.give(version, "ann", two(3))
				y.give(version, "ann", "")
				y.queueCap("without a record after "+of.when, of.left)
				y.noQueueCaps()
				y.give(version, "ann", two(3))
			}
		})
	}
}

// TestAnEditPutsTheCapInAQueueOfARecordRight where an operator has set the gate otherwise: an edit of the policy, and one of the record, also under a pause, which goes on.
func TestAnEditPutsTheCapInAQueueOfARecordRight(t *testing.T) {
	t.Parallel()
	y := &cappedYard{yard: newYard(t)}
	by := store.Intervention{Author: "ops", Reason: "test"}
	gate := store.TenantQueueGate("ann", "mail")
	version := int64(0)
	edit := func() {
		version++
		y.caps(version, []store.Cap{mailCap("ann", 7), mailCap("bob", int(version))})
	}
	edit()
	y.give(version, "ann", inMail(3))
	for _, limit := range []int{1, store.Unlimited} {
		_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: gate, Limit: limit, By: by})
		check(t, err)
		y.queueCap("set by an operator", max(0, limit))
		edit()
		y.queueCap("after an edit of the policy", 3)
	}
	_, err := y.store.Pause(t.Context(), gate, 0, by)
	check(t, err)
	edit()
	y.give(version, "ann", inMail(4))
	y.register(capSlots)
	y.waiting(version)
	y.runs("paused", 0)
	_, err = y.store.Unpause(t.Context(), gate, by)
	check(t, err)
	y.runs("after the pause", 4)
	_, err = y.store.Pause(t.Context(), gate, 0, by)
	check(t, err)
	y.give(version, "ann", "")
	y.noQueueCaps()
	_, err = y.store.Unpause(t.Context(), gate, by)
	check(t, err)
	y.runs("without a record, after a pause in which it went,", 7)
}

// TestCapsInQueuesOfRecordsCostNothingWhereThereAreNone: an edit of a record, of a cap of the policy in a queue and a dispatch take as many commands beside records that say nothing of
// caps in queues as without any; beside one that does an edit of such a cap of the policy takes one more for each tenant, and of a record and a dispatch none. An edit of one is as many
// commands with a thousand beside it as with one.
func TestCapsInQueuesOfRecordsCostNothingWhereThereAreNone(t *testing.T) {
	t.Parallel()
	y := &cappedYard{yard: newYardOn(t, redistest.Start(t, redistest.Options{}).Client(t), "")}
	y.store.SetTime(time.Now().Add(time.Hour))
	y.register(1)
	version, n := int64(0), 0
	costs := func(do func()) int64 {
		before := commandsOf(t, y.store)
		do()
		return commandsOf(t, y.store) - before
	}
	round := func() (all [3]int64) {
		version++
		u := store.PolicyUpdate{Expected: version - 1, Version: version, Text: []byte("{}"), Window: time.Minute, Edit: strconv.FormatInt(version, 10), Caps: []store.Cap{mailCap("cy", 1000), mailCap("dot", 100+int(version))}}
		u.Before, y.before = y.before, &u
		all[0] = costs(func() { check(t, y.store.PutPolicy(t.Context(), u)) }) - version // One for each version that is kept.
		all[1] = costs(func() {
			y.give(version, "ann", fmt.Sprintf(`{"queues":{"mail":{"limit":{"tokens":%d,"per":"1s"}}}}`, version))
		})
		n++
		all[2] = costs(func() {
			y.admitAt(version, mail("cy", strconv.Itoa(n)))
			leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), 1, -1, false)
			check(t, err)
			_, _, err = y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{leases[0].Finish(store.Complete)})
			check(t, err)
		})
		return all
	}
	for range 3 { // The first of each makes keys.
		round()
	}
	none := round()
	y.give(version, "bob", inMail(3))
	if with := round(); with != [3]int64{none[0] + 1, none[1], none[2]} {
		t.Errorf("beside a cap of a record in a queue an edit of the policy, of a record and a job take %v commands, without %v", with, none)
	}
	edit := costs(func() { y.give(version, "bob", inMail(4)) })
	for i := range 1000 {
		y.give(version, fmt.Sprint("other-", i), inMail(3))
	}
	if many := costs(func() { y.give(version, "bob", inMail(5)) }); many != edit {
		t.Errorf("an edit is %d commands with two records and %d with a thousand", edit, many)
	}
	for i := range 1000 {
		y.give(version, fmt.Sprint("other-", i), "")
	}
	y.give(version, "bob", "")
	if after := round(); after != none {
		t.Errorf("after the last cap of a record in a queue an edit of the policy, of a record and a job take %v commands, before %v", after, none)
	}
}

// TestAnOlderReleasesCapInAQueueIsKept: a release that does not know caps of records in queues puts that of the policy in their place; an edit of the record by one that does takes it
// for the policy's.
func TestAnOlderReleasesCapInAQueueIsKept(t *testing.T) {
	t.Parallel()
	y := &cappedYard{yard: newYard(t)}
	y.caps(1, []store.Cap{mailCap("ann", 7)})
	y.give(1, "ann", inMail(3))
	check(t, y.client.HSet(t.Context(), y.store.conn.Partition.Gates(), "u:ann:mail", "9|0|0||").Err())
	y.give(1, "ann", inMail(4))
	y.queueCap("edited again", 4)
	y.give(1, "ann", "")
	y.queueCap("without a record", 9)
	y.noQueueCaps()
}
