package laws_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestTenantsShareByWeight asserts L7 at every dispatch, and W after every call, for two to two hundred tenants with
// random weights, costs and arrivals, that drain and return, behind gates of tenants and downstreams that come and go,
// with jobs handed back, retried and taken from workers that leave.
func TestTenantsShareByWeight(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		low, high int
		ungated   bool
		flapping  bool
	}{
		"2 tenants": {low: 2, high: 2}, "3 to 12 tenants": {low: 3, high: 12}, "13 to 60 tenants": {low: 13, high: 60},
		"200 tenants": {low: 200, high: 200}, "3 to 12 tenants without gates": {low: 3, high: 12, ungated: true},
		"2 to 5 tenants paused over and over": {low: 2, high: 5, flapping: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMarket(t, row.low, row.high)
			m.ungated, m.flapping = row.ungated, row.flapping
			enough := redistest.Some(2000)
			if row.flapping {
				enough = redistest.Some(700) // They end one at a time.
			}
			for m.compared < enough {
				m.step()
			}
			m.census()
		})
	}
}

// market is a site with books: who waits where, behind what.
type market struct {
	*site
	classes  []admission.Class
	watcher  *watcher
	accounts []*accounts // by class
	tenants  []trader
	// gates that are not known to be gone: with a limit, or with waiters that are not all awake.
	gates map[store.GateName]int
	// ungated has no gates. flapping has a queue behind few slots, in which tenants are paused again and again.
	ungated, flapping bool
	// places of all jobs that live: in a lane, in the ready stream or later.
	lanes, ready, later map[string]dispatch
	leases              map[string]store.Lease // of what is ready and was read
	slots               map[string]int
	// most jobs end in one call.
	most int
	// stood is where each tenant of a class stood after the last call: runnable since which entering, or not.
	stood []map[string]string
	// shelved are the tenants, by class, that may have been on the shelf of a downstream in this call, or are.
	shelved []map[int]bool
	// compared counts the dispatches of runnable tenants.
	compared int
}

type trader struct {
	weights []admission.Weight // by class
	largest int                // cost
	busy    int                // chance of a job
	waiting []map[string]int   // by class, by downstream
}

func newMarket(t *testing.T, low, high int) *market {
	t.Helper()
	m := &market{
		site: newSite(t, redistest.Shared(t)), classes: admission.DefaultClasses(), gates: map[store.GateName]int{},
		lanes: map[string]dispatch{}, ready: map[string]dispatch{}, later: map[string]dispatch{},
		leases: map[string]store.Lease{}, slots: map[string]int{}, most: store.MaxBatchJobs,
	}
	m.watcher = m.watch(mailPool)
	m.tenants = make([]trader, m.between(low, high))
	for i := range m.tenants {
		m.tenants[i] = trader{largest: choose(m.site, 1, 4, 40), busy: choose(m.site, 1, 3, 10), weights: make([]admission.Weight, len(m.classes))}
		for range m.classes {
			m.tenants[i].waiting = append(m.tenants[i].waiting, map[string]int{})
		}
	}
	for _, c := range m.classes {
		m.accounts = append(m.accounts, newAccounts(string(c.Name), len(m.tenants)))
		m.stood, m.shelved = append(m.stood, map[string]string{}), append(m.shelved, map[int]bool{})
	}
	m.weigh()
	m.enlist("w0", 12)
	return m
}

// weigh stores new weights of all tenants.
func (m *market) weigh() {
	var caps []store.Cap
	for name, limit := range m.gates {
		if limit > 0 {
			caps = append(caps, store.Cap{Gate: name, Limit: limit})
		}
	}
	u := store.PolicyUpdate{Caps: caps, Queues: []store.QueueSettings{{Queue: "mail", Classes: m.classes, Horizon: time.Hour}}}
	for class, c := range m.classes {
		others := admission.Weight(m.between(1, 1000))
		u.Weights = append(u.Weights, store.TenantWeight{Class: c.Name, Weight: others})
		for i := range m.tenants {
			weight := others
			if !m.chance(4) {
				weight = admission.Weight(choose(m.site, m.between(1, 10), m.between(1, 1000)))
				u.Weights = append(u.Weights, store.TenantWeight{Class: c.Name, Tenant: tenantName(i), Weight: weight})
			}
			m.tenants[i].weights[class] = weight
		}
		m.accounts[class].reweigh()
	}
	m.putPolicy(u)
}

func tenantName(i int) string { return "t" + strconv.Itoa(i) }

func (m *market) enlist(worker string, slots int) {
	m.register(worker, mailPool, slots, longLease)
	m.slots[worker] = slots
}

func (m *market) step() {
	m.Helper()
	if m.flapping && len(m.lanes) > 0 && !m.chance(3) {
		m.flap()
		return
	}
	switch m.between(0, 19) {
	case 0, 1, 2, 3, 4, 5:
		if len(m.lanes) < 600 {
			m.arrive()
		}
	case 6:
		m.weigh()
	case 7, 8:
		if !m.ungated {
			m.gate()
		}
	case 9:
		m.enlist("w"+strconv.Itoa(m.between(0, 3)), m.between(1, 20))
	case 10:
		m.leave("w" + strconv.Itoa(m.between(1, 3)))
	case 11, 12:
		m.promote()
	default:
		m.work()
	}
	m.observe()
}

// arrive admits a batch of a few tenants' jobs, or of all tenants'.
func (m *market) arrive() {
	jobs := make([]store.Candidate, choose(m.site, 1, m.between(1, 8), m.between(1, store.MaxBatchJobs)))
	first, width := m.between(0, len(m.tenants)-1), m.between(1, len(m.tenants))
	for i := range jobs {
		n := (first + m.between(0, width-1)) % len(m.tenants)
		if !m.chance(m.tenants[n].busy) {
			n = first
		}
		j := m.job(tenantName(n), "mail", m.between(0, len(m.classes)-1), m.classes)
		j.Job.Downstream = choose(m.site, "", "", "api", "db")
		j.Job.Cost = admission.Tokens(m.between(1, m.tenants[n].largest))
		j.Job.MaxAttempts = admission.MaxAttemptsLimit
		if m.chance(4) {
			j.Job.Deadline = redistest.Now().Add(time.Duration(m.between(15, 100)) * time.Minute) // beyond what the clock of Redis may step in these tests
		}
		jobs[i] = j
		d := dispatch{tenant: j.Job.Tenant, id: j.Job.ID, downstream: j.Job.Downstream, class: j.Class, cost: int(j.Job.Cost)}
		m.place(d)
	}
	m.admit(jobs...)
}

// work reads some jobs and ends some.
func (m *market) work() {
	worker := choose(m.site, m.workers()...)
	for _, l := range m.read(worker, mailPool, m.between(1, 20)) {
		m.leases[l.Token] = l
	}
	var some []store.Lease
	for _, token := range sortedKeys(m.leases) {
		if !m.chance(3) && len(some) < m.most {
			some = append(some, m.leases[token])
		}
	}
	m.finish(mailPool, some, func(l store.Lease) store.Finish {
		d := m.ready[l.Token]
		delete(m.ready, l.Token)
		delete(m.leases, l.Token)
		switch m.between(0, 9) {
		case 0, 1:
			m.place(d)
			return finishAs(l, store.Release, 0)
		case 2:
			m.later[d.key()] = d
			return finishAs(l, store.Retry, time.Duration(m.between(0, 20))*time.Millisecond)
		case 3:
			m.later[d.key()] = d
			return finishAs(l, store.Release, time.Duration(m.between(1, 20))*time.Millisecond)
		}
		return complete(l)
	})
}

func (m *market) workers() []string { return sortedKeys(m.slots) }

func sortedKeys[V any](from map[string]V) []string {
	keys := make([]string, 0, len(from))
	for key := range from {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// leave drains a worker: what it holds goes back, and what no slot is left for.
func (m *market) leave(worker string) {
	delete(m.slots, worker) // They go with its last job; fewer are on the safe side.
	for more := true; more; {
		var err error
		more, err = m.store.Partitions()[0].Reclaim(m.Context(), worker)
		m.check(err)
		m.observe()
	}
}

// gate sets or removes a gate of a downstream or a tenant. Six are closed at most.
func (m *market) gate() {
	name := choose(m.site, store.DownstreamGate("api"), store.DownstreamGate("db"), m.tenantGate(), m.tenantGate())
	limit := choose(m.site, 0, 0, 1, 4, store.Unlimited, store.Unlimited, store.Unlimited)
	if len(m.gates) >= 6 {
		for open := range m.gates {
			name = min(name, open)
		}
		limit = store.Unlimited
	}
	m.gates[name] = limit
	m.settleAll()
	m.setGate(name, limit)
}

// flap pauses a tenant, lets one or two jobs end, and lets the tenant go on.
func (m *market) flap() {
	tenant := store.TenantGate(tenantName(m.between(0, len(m.tenants)-1)))
	for _, limit := range []int{0, store.Unlimited} {
		m.gates[tenant] = limit
		m.settleAll()
		m.setGate(tenant, limit)
		m.observe()
		for range m.between(0, 2) {
			m.most = 1
			m.work()
			m.observe()
		}
	}
	m.most = store.MaxBatchJobs
}

func (m *market) tenantGate() store.GateName {
	tenant := tenantName(m.between(0, len(m.tenants)-1))
	return choose(m.site, store.TenantGate(tenant), store.TenantQueueGate(tenant, "mail"))
}

// place books a job that a call puts into its lane.
func (m *market) place(d dispatch) {
	m.lanes[d.key()] = d
	i := tenantIndex(d.tenant)
	m.tenants[i].waiting[d.class][d.downstream]++
	m.settle(i, d.class)
}

func tenantIndex(name string) int {
	i, _ := strconv.Atoi(name[1:])
	return i
}

// settle tells the accounts whether a tenant is runnable in a class.
func (m *market) settle(i, class int) {
	is := false
	if !m.shelved[class][i] && !m.gated(store.TenantGate(tenantName(i))) && !m.gated(store.TenantQueueGate(tenantName(i), "mail")) {
		for downstream, n := range m.tenants[i].waiting[class] {
			is = is || n > 0 && !m.gated(store.DownstreamGate(downstream))
		}
	}
	m.accounts[class].runnable(i, is)
}

func (m *market) settleAll() {
	for i := range m.tenants {
		for class := range m.classes {
			m.settle(i, class)
		}
	}
}

func (m *market) gated(name store.GateName) bool {
	_, ok := m.gates[name]
	return ok
}

// observe books what the last call did: which jobs came back into lanes, and then what was dispatched.
func (m *market) observe() {
	m.Helper()
	stream, due, later := m.look()
	for token, d := range m.ready {
		if !stream[token] { // Nobody ended it: it was taken back.
			delete(m.ready, token)
			delete(m.leases, token)
			m.place(d)
		}
	}
	for key, d := range m.later {
		if !later[key] {
			delete(m.later, key)
			m.place(d)
		}
	}
	m.shelve(false) // After the jobs that came back: they may have been on the shelf, too.
	for _, d := range m.watcher.next() {
		m.dispatched(d)
	}
	opened := false
	for name, limit := range m.gates {
		if limit == store.Unlimited && !due["k"+string(name)] {
			delete(m.gates, name)
			opened = true
		}
	}
	m.shelve(true)
	if opened {
		m.settleAll()
	}
	m.checkWakeUp(due)
}

// shelve finds out who may have been on the shelf of a downstream in this call: whoever has jobs for one, and is not
// runnable since the same entering. When the call is over, those who are runnable count again.
func (m *market) shelve(over bool) {
	m.Helper()
	for class := range m.classes {
		stands, err := m.client.HGetAll(m.Context(), m.key(fmt.Sprintf("ten:%d:mail", class))).Result()
		m.check(err)
		for i := range m.tenants {
			name, calls := tenantName(i), false
			for downstream, n := range m.tenants[i].waiting[class] {
				calls = calls || downstream != "" && n > 0
			}
			now := stands[name][:min(len(stands[name]), entryEnd)]
			out := calls && (now == "" || now[0] != 'a' || !over && now != m.stood[class][name])
			if out != m.shelved[class][i] && (out || over) {
				m.shelved[class][i] = out
				m.settle(i, class)
			}
			if over {
				m.stood[class][name] = now
			}
		}
	}
}

// entryEnd is the length of a tenant's mode and entry in the hash of its class.
const entryEnd = 9

// look reads the tokens of the ready stream, the timers, and the jobs that wait for a time.
func (m *market) look() (stream, due, later map[string]bool) {
	m.Helper()
	pipe := m.client.Pipeline()
	entries := pipe.XRange(m.Context(), m.watcher.stream, "-", "+")
	timers := pipe.ZRange(m.Context(), redisstore.Keys(m.store).Due(), 0, -1)
	delayed := pipe.ZRange(m.Context(), redisstore.Keys(m.store).Later(), 0, -1)
	_, err := pipe.Exec(m.Context())
	m.check(err)
	return setOf(entries.Val(), func(x redis.XMessage) string { return x.ID }),
		setOf(timers.Val(), strings.Clone), setOf(delayed.Val(), strings.Clone)
}

func setOf[E any](from []E, name func(E) string) map[string]bool {
	set := make(map[string]bool, len(from))
	for _, e := range from {
		set[name(e)] = true
	}
	return set
}

func (m *market) dispatched(d dispatch) {
	m.Helper()
	if _, ok := m.lanes[d.key()]; !ok {
		m.Fatalf("job %s was dispatched and did not wait", d.key())
	}
	delete(m.lanes, d.key())
	m.ready[d.token] = d
	i := tenantIndex(d.tenant)
	if m.accounts[d.class].tenants[i].since > 0 {
		m.compared++
	}
	m.check(m.accounts[d.class].dispatched(i, float64(d.cost)/float64(m.tenants[i].weights[d.class])))
	m.tenants[i].waiting[d.class][d.downstream]--
	m.settle(i, d.class)
}

// checkWakeUp asserts law W: no room while a job could run, unless a timer continues the work. A gate with a unit free
// stops nobody.
func (m *market) checkWakeUp(due map[string]bool) {
	m.Helper()
	slots := 0
	for _, n := range m.slots {
		slots += n
	}
	for timer := range due {
		if timer[0] == 'f' || timer[0] == 'k' {
			return
		}
	}
	if len(m.ready) >= slots {
		return
	}
	held := map[store.GateName]int{}
	for _, d := range m.ready {
		for _, name := range gatesOver(d) {
			held[name]++
		}
	}
	shut := func(name store.GateName) bool {
		limit, ok := m.gates[name]
		return ok && limit >= 0 && held[name] >= limit
	}
	for key, d := range m.lanes {
		if !slices.ContainsFunc(gatesOver(d), shut) {
			m.Fatalf("law W: %d of %d slots are taken, and job %s could run; gates %v hold %v", len(m.ready), slots, key, m.gates, held)
		}
	}
}
