package laws_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	crowdedLanes = 2000
	// maxMoves is what a call may move.
	maxMoves = 64
	// continueAfter is how far ahead the timer of a call that ran out of moves stands at most.
	continueAfter = 50 * time.Millisecond
	crowdedSlots  = 16
	// openTenants have jobs that no gate stops, so many each.
	openTenants, openJobs = 20, 200
)

// crowded is a site with thousands of lanes behind one downstream.
type crowded struct {
	*site
	pool store.Pool
}

// newCrowded admits the lanes of a downstream, and jobs of others beside them.
func newCrowded(t *testing.T, lanes int) *crowded {
	t.Helper()
	c := &crowded{site: newSite(t, redistest.Start(t, redistest.Options{})), pool: mailPool}
	classes := admission.DefaultClasses()
	var jobs []store.Candidate
	for i := range lanes {
		j := c.job(tenantName(i), "mail", i%len(classes), classes)
		j.Job.Downstream = "api"
		jobs = append(jobs, j)
	}
	c.admit(append(jobs, c.openJobs(openTenants*openJobs)...)...)
	return c
}

// TestThousandsOfLanesBehindOneGate asserts, of the gates of design.md: closing one moves nothing; what is parked costs
// others nothing; and opening it brings everybody back, 64 moves a call, with a timer (law W) until it is done.
func TestThousandsOfLanesBehindOneGate(t *testing.T) {
	t.Parallel()
	gate := store.DownstreamGate("api")
	alone := newCrowded(t, 0)
	alone.setGate(gate, 0)
	alone.register("w", mailPool, crowdedSlots, longLease)
	usual := alone.costOfOpen()

	c := newCrowded(t, crowdedLanes)
	before := c.picture()
	c.setGate(gate, 0)
	if after := c.picture(); !maps.Equal(before, after) {
		t.Errorf("closing a gate changed the waiting room: %v became %v", before, after)
	}
	c.register("w", mailPool, crowdedSlots, longLease)
	c.park()
	if cost := c.costOfOpen(); cost > usual*1.01 {
		t.Errorf("%.2f commands a job beside %d parked lanes, %.2f beside none", cost, crowdedLanes, usual)
	}
	for c.finishReady(store.MaxBatchJobs) > 0 {
	}
	if left := c.census(); left.Waiting != crowdedLanes || left.Ready != 0 {
		t.Fatalf("when all others have run: %+v", left)
	}
	c.reopen(gate)
	ran := map[string]bool{}
	for leases := c.read("w", mailPool, crowdedSlots); len(leases) > 0; leases = c.read("w", mailPool, crowdedSlots) {
		for _, l := range leases {
			ran[l.Job.Tenant] = true
		}
		c.finish(mailPool, leases, complete)
	}
	if left := c.census(); len(ran) != crowdedLanes || left.Live != 0 {
		t.Errorf("%d of %d tenants ran, left are %+v", len(ran), crowdedLanes, left)
	}
}

// picture is what every key holds, but for the gates, the audit of who closed them, and the state's clocks.
func (c *crowded) picture() map[string]string {
	c.Helper()
	names := c.keys()
	args := []any{"debug", "digest-value"}
	for _, name := range names {
		args = append(args, c.key(name))
	}
	digests, err := c.client.Do(c.Context(), args...).StringSlice()
	c.check(err)
	picture := map[string]string{}
	for i, name := range names {
		if name != "state" && name != "gates" && name != "audit" {
			picture[name] = digests[i]
		}
	}
	for field, value := range redistest.State(c, c.client, redisstore.Keys(c.store).State()) {
		if strings.Contains(field, ":") || field == "seq" {
			picture["state "+field] = value
		}
	}
	return picture
}

// costOfOpen returns the commands a job that is not behind the gate.
func (c *crowded) costOfOpen() float64 {
	c.Helper()
	const calls = 60
	before := c.commands()
	for range calls {
		if n := c.finishReady(crowdedSlots); n != crowdedSlots {
			c.Fatalf("%d jobs are ready, want %d", n, crowdedSlots)
		}
	}
	return float64(c.commands()-before) / (calls * crowdedSlots)
}

// park lets every lane come to its head and find its gate closed.
func (c *crowded) park() {
	c.Helper()
	for calls := 0; ; calls++ {
		parked := c.parked("d:api")
		if parked == crowdedLanes {
			return
		}
		if calls > 4*crowdedLanes/maxMoves {
			c.Fatalf("%d lanes are parked after %d calls", parked, calls)
		}
		c.finishReady(1)
		if now := c.parked("d:api"); now > parked+maxMoves {
			c.Fatalf("law L12: one call parked %d lanes", now-parked)
		}
		c.carryOn("f" + c.pool.ID())
	}
}

// carryOn promotes while a timer stands that continues what ran out of moves. Whoever is told `more` calls at once; the
// timer is for the case that nobody does.
func (c *crowded) carryOn(timers ...string) (found bool) {
	c.Helper()
	for _, timer := range timers {
		at, err := c.client.ZScore(c.Context(), redisstore.Keys(c.store).Due(), timer).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		c.check(err)
		found = true
		if ahead := time.Duration(int64(at)-int64(c.redisTime())) * time.Microsecond; ahead > continueAfter {
			c.Fatalf("law W: the timer %s stands %s ahead", timer, ahead)
		}
	}
	if !found {
		return false
	}
	if next := c.promote(); next.Moved > maxMoves {
		c.Fatalf("law L12: promote made %d moves", next.Moved)
	}
	return true
}

// parked counts the waiters of a gate.
func (c *crowded) parked(gate string) (n int) {
	c.Helper()
	lines, err := c.client.SMembers(c.Context(), c.key("gq:"+gate)).Result()
	c.check(err)
	for _, line := range lines {
		waiters, err := c.client.ZCard(c.Context(), c.key("gw:"+gate+"|"+line)).Result()
		c.check(err)
		n += int(waiters)
	}
	return n
}

// reopen removes the gate and counts the calls until all are awake and the room is full. Until then a timer stands.
func (c *crowded) reopen(gate store.GateName) {
	c.Helper()
	start := time.Now()
	c.setGate(gate, store.Unlimited)
	if parked := c.parked(string(gate)); parked < crowdedLanes-maxMoves {
		c.Fatalf("law L12: opening the gate woke %d lanes in one call", crowdedLanes-parked)
	}
	const enough = (crowdedLanes+maxMoves-1)/maxMoves + 3
	calls, first := 0, -1
	for ; ; calls++ {
		if n, err := c.client.XLen(c.Context(), redisstore.Keys(c.store).Ready(c.pool.ID())).Result(); err == nil && n > 0 && first < 0 {
			first = calls
		}
		if calls > enough {
			c.Fatalf("%d lanes are parked after %d calls", c.parked(string(gate)), calls)
		}
		if !c.carryOn("k"+string(gate), "f"+c.pool.ID()) {
			break
		}
	}
	if parked := c.parked(string(gate)); parked > 0 {
		c.Fatalf("law W: %d lanes are parked behind an open gate, and no timer stands", parked)
	}
	ready, err := c.client.XLen(c.Context(), redisstore.Keys(c.store).Ready(c.pool.ID())).Result()
	c.check(err)
	if ready != crowdedSlots {
		c.Fatalf("law W: %d of %d slots are taken when all are awake", ready, crowdedSlots)
	}
	c.Logf("%d lanes were awake after %d calls of promote and %s; the first job was dispatched after %d",
		crowdedLanes, calls, time.Since(start).Round(time.Millisecond), first)
}
