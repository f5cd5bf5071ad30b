package redisstore

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// ratedYard is a yard whose tenants have rates of dispatches. Its clock stands until it is told to go.
type ratedYard struct {
	*cappedYard

	now time.Time
}

func newRatedYard(t *testing.T) *ratedYard {
	t.Helper()
	y := &ratedYard{&cappedYard{yard: newYard(t)}, time.Now().Add(time.Hour)}
	y.store.SetTime(y.now)
	return y
}

// passes has time pass, and what is due done.
func (y *ratedYard) passes(d time.Duration) {
	y.tb.Helper()
	y.now = y.now.Add(d)
	y.store.SetTime(y.now)
	y.promoteAll()
}

// perSecond is a record of one dispatch a second and so many at once.
func perSecond(burst int) string {
	return fmt.Sprintf(`{"dispatch":{"tokens":1,"per":"1s","burst":%d}}`, burst)
}

func ofRate(tenant string, burst admission.Tokens) store.Cap {
	return store.Cap{Gate: store.TenantRateGate(tenant), Rate: admission.PerSecond(1, burst)}
}

// rate fails unless that is the rate of ann's dispatches that is in force, by its burst; 0 is none.
func (y *ratedYard) rate(when string, burst int) {
	y.tb.Helper()
	gates, err := y.store.Gates(y.tb.Context())
	check(y.tb, err)
	got := 0
	for _, g := range gates {
		if g.Name == store.TenantRateGate("ann") {
			got = g.Burst
		}
	}
	if got != burst {
		y.tb.Errorf("%s ann has a rate of burst %d, want %d", when, got, burst)
	}
}

// nothingLeft fails where something is left of rates by records.
func (y *ratedYard) nothingLeft() {
	y.tb.Helper()
	state := y.store.conn.Partition.State()
	if rows, n := y.client.HGetAll(y.tb.Context(), y.store.conn.Partition.Dispatch()).Val(), y.client.HGet(y.tb.Context(), state, "rd").Val(); len(rows) > 0 || n != "" {
		y.tb.Errorf("%v are left, counted as %q", rows, n)
	}
}

// TestADispatchOfARecordIsInForceAtOnce: an edit of the record is in force in its own script. A new rate begins full, a raised one wakes who waits when it has a token by
// the new rate, a lowered one leaves no more tokens than its burst, and without one, or where it says that there is none, who waits for it runs.
func TestADispatchOfARecordIsInForceAtOnce(t *testing.T) {
	t.Parallel()
	y := newRatedYard(t)
	y.caps(1, nil)
	y.register(40)
	y.give(1, "ann", perSecond(3))
	y.waiting(1)
	y.runs("at first", 3)
	y.passes(2 * time.Second)
	y.runs("two seconds later", 5)
	y.give(1, "ann", `{"dispatch":{"tokens":1,"per":"1h","burst":1}}`)
	y.passes(4 * time.Second)
	y.runs("lowered", 5)
	y.give(1, "ann", `{"dispatch":{"tokens":10,"per":"1s","burst":10}}`)
	y.runs("raised", 5)
	y.passes(time.Second)
	y.runs("a second later, whose timer was an hour ahead,", 15)
	y.passes(time.Second / 2)
	y.runs("with half a second more", 20)
	y.give(1, "ann", `{"max_running":1000,"dispatch":{"enabled":false}}`)
	y.rate("with none", 0)
	y.runs("with none", 40)
	y.give(1, "ann", "")
	y.nothingLeft()
	if ng := y.client.HGet(t.Context(), y.store.conn.Partition.State(), "ng").Val(); ng != "" {
		t.Errorf("after the last rate there is %q", ng)
	}
}

// TestARateOfARecordKeepsTokens: those that are there stay, up to the new burst, where the record's comes in the place of the policy's, changes, and goes again.
func TestARateOfARecordKeepsTokens(t *testing.T) {
	t.Parallel()
	y := newRatedYard(t)
	y.caps(1, []store.Cap{ofRate("ann", 8)})
	y.register(40)
	y.admitAt(1, mail("ann", "a"), mail("ann", "b"))
	y.runs("two of eight", 2)
	y.give(1, "ann", perSecond(20)) // Six are left.
	y.give(1, "ann", perSecond(5))
	y.give(1, "ann", "")
	y.rate("without a record", 8)
	y.waiting(1)
	y.runs("five that were left", 7)
	y.give(1, "ann", perSecond(20))
	y.runs("by a larger burst", 7)
	y.give(1, "ann", `{"tier":"gold","dispatch":{"tokens":1,"per":"1s","burst":20}}`)
	y.runs("by an edit of another part of the record", 7)
	y.give(1, "ann", "")
	y.nothingLeft()
}

// TestAnEditOfThePolicyLeavesTheRateOfARecord in force, whoever edits, and is in force itself when the record has none any more: where it came meanwhile, changed, or
// went.
func TestAnEditOfThePolicyLeavesTheRateOfARecord(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"who knows the policy", "another process"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			y := newRatedYard(t)
			version := int64(0)
			put := func(caps ...store.Cap) {
				t.Helper()
				if version++; who == "another process" {
					y.before = nil
				}
				y.caps(version, caps)
			}
			others := []store.Cap{ofRate("bob", 2), {Gate: store.TenantGate("ann"), Limit: 100}}
			put(others...)
			y.give(version, "ann", perSecond(3))
			for _, of := range []struct {
				when string
				caps []store.Cap
				left int
			}{
				{"the policy's came", append(others[:2:2], ofRate("ann", 7)), 7},
				{"it changed", append(others[:2:2], ofRate("ann", 9)), 9},
				{"another one went", append(others[:1:1], ofRate("ann", 9)), 9},
				{"it went", others, 0},
			} {
				put(of.caps...)
				y.rate("after "+of.when, 3)
				stored, err := y.store.Stored(t.Context())
				check(t, err)
				if want := policies.SettingsOf(&store.PolicyUpdate{Caps: of.caps}); !maps.Equal(stored, want) {
					t.Errorf("after %s Redis has of the policy: %s", of.when, differs(stored, want))
				}
				y.give(version, "ann", `{"dispatch":{"enabled":false}}`)
				y.rate("none after "+of.when, 0)
				y.give(version, "ann", "")
				y.rate("without a record after "+of.when, of.left)
				y.nothingLeft()
				y.give(version, "ann", perSecond(3))
			}
		})
	}
}

// rateJobs are more than start.
const rateJobs = 200

// TestRatesOfRecordsAreNeverPassed: whatever edits of records and of the policy come, from the first rate on no more jobs start than the largest burst so far and what has come
// in at the rates that were in force, and each token that is there starts one.
func TestRatesOfRecordsAreNeverPassed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		y := newRatedYard(t)
		rate := func(name string) (perSecond, burst int) {
			return rapid.IntRange(1, 5).Draw(rt, name), rapid.IntRange(1, 6).Draw(rt, name+"'s burst")
		}
		version, came, started := int64(0), 0.0, 0
		var ofPolicy, ofRecord [2]int // rate and burst, zeros for none
		inForce := func() [2]int { return cmp.Or(ofRecord, ofPolicy) }
		put := func() {
			version++
			ofPolicy[0], ofPolicy[1] = rate("policy")
			if rapid.Bool().Draw(rt, "another process") {
				y.before = nil
			}
			y.caps(version, []store.Cap{{Gate: store.TenantRateGate("ann"), Rate: admission.PerSecond(admission.Tokens(ofPolicy[0]), admission.Tokens(ofPolicy[1]))}})
		}
		put()
		y.register(1000)
		var jobs []admission.Job
		for n := range rateJobs {
			jobs = append(jobs, mail("ann", strconv.Itoa(n)))
		}
		y.admitAt(version, jobs...)
		most := ofPolicy[1]
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				put()
			case 1:
				ofRecord = [2]int{}
				y.give(version, "ann", "")
			case 2:
				ofRecord[0], ofRecord[1] = rate("record")
				y.give(version, "ann", fmt.Sprintf(`{"dispatch":{"tokens":%d,"per":"1s","burst":%d}}`, ofRecord[0], ofRecord[1]))
			case 3:
				for range rapid.IntRange(1, 6).Draw(rt, "halves of a second") {
					y.passes(time.Second / 2)
					came += float64(inForce()[0]) / 2
				}
			}
			most = max(most, inForce()[1])
			if started = y.ready(); float64(started) > float64(most)+came {
				rt.Fatalf("%d have started, of %d at once and %g that came since", started, most, came)
			}
		}
		for range 4 {
			y.passes(time.Second / 2)
		}
		now := inForce() // Of a burst below what comes in a second something is lost in half a second.
		if more, want := y.ready()-started, min(2*now[0], rateJobs-started); more < want && now[1] >= now[0] {
			rt.Fatalf("%d have started in two seconds by %v, want %d", more, now, want)
		}
	})
}

// TestRatesOfRecordsCostNothingWhereThereAreNone: an edit of a record, of a rate of the policy and a dispatch take as many commands beside records that say nothing of
// rates as without any; beside one that does an edit takes one more, and a dispatch none.
func TestRatesOfRecordsCostNothingWhereThereAreNone(t *testing.T) {
	t.Parallel()
	y := &ratedYard{&cappedYard{yard: newYardOn(t, redistest.Start(t, redistest.Options{}).Client(t), "")}, time.Now().Add(time.Hour)}
	y.store.SetTime(y.now)
	y.register(1)
	version, n := int64(0), 0
	costs := func(do func()) int64 {
		before := commandsOf(t, y.store)
		do()
		return commandsOf(t, y.store) - before
	}
	round := func() (all [3]int64) {
		version++
		u := store.PolicyUpdate{Expected: version - 1, Version: version, Text: []byte("{}"), Window: time.Minute, Edit: strconv.FormatInt(version, 10), Caps: []store.Cap{ofRate("cy", 1000), ofRate("dot", admission.Tokens(100+version))}}
		u.Before, y.before = y.before, &u
		all[0] = costs(func() { check(t, y.store.PutPolicy(t.Context(), u)) }) - version // One for each version that is kept.
		all[1] = costs(func() { y.give(version, "ann", fmt.Sprintf(`{"limit":{"tokens":%d,"per":"1s"}}`, version)) })
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
	y.give(version, "bob", perSecond(3))
	if with := round(); with != [3]int64{none[0] + 1, none[1] + 1, none[2]} {
		t.Errorf("beside a rate of a record an edit of the policy, of a record and a job take %v commands, without %v", with, none)
	}
	y.give(version, "bob", "")
	if after := round(); after != none {
		t.Errorf("after the last rate of a record an edit of the policy, of a record and a job take %v commands, before %v", after, none)
	}
}

// TestAnOlderReleasesRateIsKept: a release that does not know rates of records puts that of the policy in their place; an edit of the record by one that does takes it for
// the policy's.
func TestAnOlderReleasesRateIsKept(t *testing.T) {
	t.Parallel()
	y := newRatedYard(t)
	y.caps(1, []store.Cap{ofRate("ann", 7)})
	y.give(1, "ann", perSecond(3))
	gates := y.store.conn.Partition.Gates()
	check(t, y.client.HSet(t.Context(), gates, "r:ann", "1|9000000|9000000:1:0:1").Err())
	y.give(1, "ann", perSecond(4))
	y.rate("edited again", 4)
	y.give(1, "ann", "")
	y.rate("without a record", 9)
	y.nothingLeft()
}
