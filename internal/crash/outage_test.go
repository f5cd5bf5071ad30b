package crash_test

import (
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	outageWorkers   = 6
	outageProducers = 2
	// outagePatience is how long anything may take on a machine that does much else.
	outagePatience = 60 * time.Second
	// died and cut are outages that are no behaviour of a server: its process is killed, or one worker's network is cut.
	died = "die"
	cut  = "cut"
)

// TestOutage asserts L10 and L11, and with them L4, over downstreams that are processes: at the same time one dies, one
// fails, one hangs, one slows down, one flaps, one worker cannot reach a sixth, and one stays well. Six workers call them
// for 200 tenants. What it asserts does not depend on how fast the machine is; `make outage` measures.
func TestOutage(t *testing.T) {
	t.Parallel()
	o := newOutage(t, died, behaveFailed, behaveHang, behaveSlow, behaveFlap, cut)
	var without []*measurement
	steps, anyway := 0.0, 0.0 // of runs that differ without an outage, too
	for i := range 2 {
		if i > 0 {
			o.exercise()
		}
		m, _ := o.run(600, offerTenants)
		for _, other := range without {
			anyway = max(anyway, m.moved(other, nil))
		}
		steps, without = max(steps, m.steps), append(without, m)
	}
	o.strike()
	// Calls that went out before the breakers knew count as service of their tenants, whose turn comes later for it: one run evens that.
	o.run(600, offerTenants)
	from := o.mark()
	with, _ := o.run(600, offerTenants)
	served := o.tenantsServedByIll(from)
	o.mend()
	found := o.audit()
	found.assert(t)
	if steps == 0 || with.steps > steps*1.05 {
		t.Errorf("law L10: others' jobs waited for %.1f dispatches in the mean, and %.1f without outage", with.steps, steps)
	}
	// A probe is a turn of its tenant, whose other jobs come a turn later for it. Nobody else's may.
	moved := math.Inf(1)
	for _, m := range without {
		moved = min(moved, with.moved(m, served))
	}
	if len(served) > offerTenants*3/4 || moved > anyway+0.05 {
		t.Errorf("law L10: jobs of the %d tenants that had no turn with an ill downstream were dispatched %.1f %% of their wait from their places without outage, of which runs are %.1f %% apart",
			offerTenants-len(served), 100*moved, 100*anyway)
	}
	for _, row := range found {
		t.Logf("%s: %+v", row.behaviour, row)
	}
	t.Logf("others waited for %.1f dispatches without outage, and %.1f with it; %.1f %% from their places, %.1f %% anyway; %d tenants had turns with ill downstreams",
		steps, with.steps, 100*moved, 100*anyway, len(served))
}

// outage is a fleet with downstreams, of which all but the first fall ill.
type outage struct {
	*ledger
	client *redis.Client
	store  store.Deployment
	// illnesses are those of the downstreams from 1; a cut has a well one.
	illnesses []string
	urls      []string
	producers []*actor
	workers   []*actor
	// began is where the outage does; struck, opened and mended are times in nanoseconds.
	began          mark
	struck, mended int64
	// measured counts the measurements.
	measured int
}

func newOutage(tb testing.TB, illnesses ...string) *outage {
	tb.Helper()
	server := redistest.Start(tb, redistest.Options{})
	c := newCast(tb, server)
	o := &outage{ledger: newLedger(c), client: server.Client(tb), illnesses: illnesses}
	var err error
	o.store, err = redisstore.Open(tb.Context(), o.client, redisstore.Config{})
	c.check(err)
	for i := range len(illnesses) + 1 {
		c.await(c.enter(downstreamRole, i), "P", outagePatience)
	}
	o.urls, err = callURLs(c.book(offererRole, 0))
	c.check(err)
	for i := range outageWorkers {
		o.workers = append(o.workers, c.enter(callerRole, i))
	}
	o.until("the workers", func() bool {
		n, err := o.client.HLen(tb.Context(), redisstore.Keys(o.store).Workers()).Result()
		return err == nil && n == outageWorkers
	})
	return o
}

// until waits, and reads the books meanwhile.
func (o *outage) until(what string, done func() bool) {
	o.Helper()
	for deadline := time.Now().Add(outagePatience); ; o.pause(20 * time.Millisecond) {
		o.follow()
		if done() {
			return
		}
		if time.Now().After(deadline) {
			census, err := o.store.Census(o.Context())
			o.Fatalf("waited in vain for %s; %+v, %v; %v", what, census, err, walks(o.TB, o.store))
		}
	}
}

// load lets producers offer jobs, or stop.
func (o *outage) load(on bool) {
	o.Helper()
	if !on {
		o.leaveAll(offererRole)
		return
	}
	for i := range outageProducers {
		if i == len(o.producers) {
			o.producers = append(o.producers, o.enter(offererRole, i))
		} else {
			o.start(o.producers[i])
		}
	}
}

// exercise is the load of strike without its outage.
func (o *outage) exercise() {
	o.Helper()
	o.load(true)
	o.called()
	o.pause(time.Second)
	o.load(false)
}

// called waits until every downstream is called.
func (o *outage) called() {
	o.Helper()
	from := o.mark()
	o.until("calls of every downstream", func() bool {
		called := make([]int, len(o.urls))
		for _, c := range o.calls[from.calls:] {
			called[c.downstream]++
		}
		return slices.Min(called) >= callerMinCalls
	})
}

// strike lets the downstreams fall ill under load, once all are called, and returns without load when every worker
// knows, and jobs are parked.
func (o *outage) strike() {
	o.Helper()
	o.load(true)
	o.called()
	o.began, o.struck = o.mark(), nanos()
	for i, illness := range o.illnesses {
		o.fallIll(i+1, illness)
	}
	o.until("every worker to know", func() bool {
		for i, illness := range o.illnesses {
			name := downstreamName(i + 1)
			lonely := slices.ContainsFunc(o.lonely[o.began.lonely:], func(h heardLine) bool { return h.downstream == name && h.word == "true" })
			if illness == cut && !lonely || illness != cut && len(o.knowing(name)) < outageWorkers {
				return false
			}
		}
		return true
	})
	o.pause(500 * time.Millisecond) // Newcomers park.
	o.load(false)
}

func (o *outage) fallIll(number int, illness string) {
	o.Helper()
	switch illness {
	case died:
		o.kill(o.actor(downstreamRole, number))
	case cut:
		o.turnNetwork()
	default:
		o.behave(number, illness)
	}
}

// turnNetwork cuts the first worker's, or mends it.
func (o *outage) turnNetwork() {
	o.Helper()
	_, err := o.workers[0].input.Write([]byte{'\n'})
	o.check(err)
}

func (o *outage) actor(role string, number int) *actor {
	return o.actors[slices.IndexFunc(o.actors, func(a *actor) bool { return a.role == role && a.number == number })]
}

// behave tells a downstream how to.
func (o *outage) behave(number int, how string) {
	o.Helper()
	url, err := downstreamURL(o.book(downstreamRole, number), how)
	o.check(err)
	request, err := http.NewRequestWithContext(o.Context(), http.MethodPut, url, http.NoBody)
	o.check(err)
	response, err := http.DefaultClient.Do(request)
	o.check(err)
	o.check(response.Body.Close())
}

// knowing returns when each worker first heard that a downstream is open, since the outage began.
func (o *outage) knowing(downstream string) map[int]int64 {
	knows := map[int]int64{}
	for _, h := range o.heard[o.began.heard:] {
		if _, known := knows[h.worker]; !known && h.downstream == downstream && h.word == breaker.Open.String() {
			knows[h.worker] = h.at
		}
	}
	return knows
}

// mend makes all well again under load, and returns when everything has run.
func (o *outage) mend() {
	o.Helper()
	o.load(true)
	o.mended = nanos()
	for i, illness := range o.illnesses {
		switch illness {
		case died:
			o.start(o.actor(downstreamRole, i+1))
		case cut:
			o.turnNetwork()
		default:
			o.behave(i+1, behaveWell)
		}
	}
	o.until("every breaker to close", func() bool {
		all := walks(o.TB, o.store)
		for _, w := range all {
			if w.state() != breaker.Closed {
				return false
			}
		}
		return true
	})
	o.load(false)
	o.until("everything to run", func() bool {
		c, err := o.store.Census(o.Context())
		return err == nil && c.Live == 0
	})
	o.until("the last word of the workers", func() bool { return o.unfinished() == 0 })
}

// unfinished counts the handlers that began and have not ended.
func (o *outage) unfinished() int {
	running := map[string]bool{}
	for _, s := range o.starts {
		running[s.token] = true
	}
	for _, f := range o.ends {
		delete(running, f.token)
	}
	return len(running)
}
