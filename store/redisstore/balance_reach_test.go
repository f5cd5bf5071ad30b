package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// divide4 is a deployment of four partitions with a cap of 102 jobs of the queue mail, a rate of 40 calls a second of the
// downstream api and a global limit, and with a clock that a test moves.
type divide4 struct {
	t        *testing.T
	store    *many
	line     *badLine
	balancer *balancer
	now      int64
	jobs     int
	global   admission.Limit
}

const partsOf4, capOf4 = 4, 102

var (
	rateOf4   = admission.PerSecond(40).WithBurst(16)
	globalOf4 = admission.PerSecond(2000).WithBurst(400)
)

func newDivide4(t *testing.T) *divide4 {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	d := &divide4{t: t, line: &badLine{}, now: 1_700_000_000_000_000}
	check(t, client.ScriptLoad(t.Context(), textOf(shareOf(partsOf4))).Err())
	client.AddHook(d.line)
	var err error
	d.store, err = openMany(t.Context(), client, Config{Prefix: redistest.Prefix(t), Partitions: partsOf4})
	check(t, err)
	d.balancer = d.store.newBalancer()
	d.pass(0)
	for _, part := range d.store.parts {
		_, err := part.Register(t.Context(), "w", yardPool, 200, time.Hour)
		check(t, err)
	}
	d.put(store.Cap{Gate: store.QueueGate("mail"), Limit: capOf4}, store.Cap{Gate: store.DownstreamRateGate("api"), Rate: rateOf4})
	return d
}

// put stores a policy.
func (d *divide4) put(caps ...store.Cap) {
	d.t.Helper()
	version, _, err := d.part(0).PolicyEdit(d.t.Context())
	check(d.t, err)
	check(d.t, d.store.PutPolicy(d.t.Context(), store.PolicyUpdate{
		Expected: version, Version: version + 1, Text: []byte(`{}`), Window: time.Minute, Edit: strconv.FormatInt(version, 10), Caps: caps,
	}))
}

func (d *divide4) part(p int) *Partition { return d.store.parts[p] }

func (d *divide4) pass(by time.Duration) {
	d.now += by.Microseconds()
	for p := range partsOf4 {
		d.part(p).conn.Now = strconv.FormatInt(d.now, 10)
	}
}

// steps balances so many times, half a second apart.
func (d *divide4) steps(n int) {
	d.t.Helper()
	for range n {
		d.pass(500 * time.Millisecond)
		check(d.t, d.balancer.Step(d.t.Context()))
		for p := range partsOf4 {
			_, err := d.part(p).Promote(d.t.Context(), "s", time.Second)
			check(d.t, err)
		}
	}
}

// admit sends jobs of so many tenants to a partition and returns how many were admitted.
func (d *divide4) admit(p, n, tenants int, downstream string) (admitted int) {
	d.t.Helper()
	version, _, err := d.part(p).PolicyEdit(d.t.Context())
	check(d.t, err)
	for n > 0 {
		jobs := make([]store.Candidate, min(n, store.MaxBatchJobs))
		n -= len(jobs)
		for i := range jobs {
			d.jobs++
			j := mail(fmt.Sprint("tenant-", d.jobs%tenants), strconv.Itoa(d.jobs))
			j.Downstream = downstream
			jobs[i] = store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{d.global}}
		}
		verdicts, err := d.part(p).Admit(d.t.Context(), version, jobs)
		check(d.t, err)
		for _, v := range verdicts {
			if v.Decision == admission.Admitted {
				admitted++
			}
		}
	}
	return admitted
}

// running returns how many jobs run in a partition.
func (d *divide4) running(p int) int {
	d.t.Helper()
	g, found, err := d.part(p).gateState(d.t.Context(), store.QueueGate("mail"))
	check(d.t, err)
	if !found {
		d.t.Fatal("no cap")
	}
	return g.Held
}

// end completes what runs in a partition and returns how many jobs that were.
func (d *divide4) end(p int) int {
	d.t.Helper()
	leases, err := d.part(p).Read(d.t.Context(), "w", yardPool.ID(), 1000, -1, false)
	check(d.t, err)
	for _, l := range leases {
		_, _, err := d.part(p).Finish(d.t.Context(), yardPool.ID(), "w", []store.Finish{l.Finish(store.Complete)})
		check(d.t, err)
	}
	return len(leases)
}

func (d *divide4) allRunning() (sum int) {
	d.t.Helper()
	for p := range partsOf4 {
		sum += d.running(p)
	}
	return sum
}

func (d *divide4) fields() (shares []string) {
	for p := range partsOf4 {
		shares = append(shares, redisconn.Client(d.part(0).conn).HGet(d.t.Context(), d.part(p).conn.Partition.Base()+"shares", string(store.QueueGate("mail"))).Val())
	}
	return shares
}

// TestACapGoesWhereTheLoadIs has all load in one partition, then in another, then in none.
func TestACapGoesWhereTheLoadIs(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.admit(0, 1000, 1, "")
	if n := d.running(0); n != capOf4/partsOf4 {
		t.Fatalf("%d jobs run in an even share", n)
	}
	for n, want := range []int{0, 60, 80, 90, 90, 95} {
		if got := d.running(0); got < want || got > capOf4 {
			t.Errorf("%d of %d run after %d steps, want %d", got, capOf4, n, want)
		}
		d.steps(1)
	}
	gates, err := d.store.Gates(t.Context())
	check(t, err)
	if at := slices.IndexFunc(gates, func(g store.GateState) bool { return g.Name == store.QueueGate("mail") }); gates[at].Limit > capOf4 ||
		gates[at].Shares[0] < capOf4*9/10 || len(gates[at].Shares) != partsOf4 {
		t.Errorf("shares are shown as %+v", gates[at])
	}
	before := d.running(0)
	d.admit(1, 20, 1, "")
	if got := d.running(1); got == 0 || got+before > capOf4 {
		t.Errorf("%d run at once in a partition that was idle, beside %d", got, before)
	}
	d.steps(1) // The other's share is lowered, though its jobs run on.
	if a, b := d.running(0), d.running(1); a+b > capOf4 {
		t.Errorf("%d and %d run after a share was lowered", a, b)
	}
	for range 6 {
		d.end(0)
		d.steps(1)
	}
	if a, b := d.running(0), d.running(1); a+b > capOf4 || b < 20 || a < 70 {
		t.Errorf("%d and %d run where the second has 20 jobs", a, b)
	}
	for p := range partsOf4 {
		for d.end(p) > 0 {
		}
	}
	d.steps(60)
	for p, text := range d.fields() {
		if text != "102|1|4|4" {
			t.Errorf("partition %d has %q long after all load ended", p, text)
		}
	}
}

// TestRatesGoWhereTheLoadIs has calls of a downstream wait, and jobs be refused by the global limit, in one partition.
func TestRatesGoWhereTheLoadIs(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.put(store.Cap{Gate: store.DownstreamRateGate("api"), Rate: rateOf4})
	d.global = globalOf4
	sent, passed := 0, 0
	for n := range 12 {
		for range 20 {
			d.pass(25 * time.Millisecond)
			got := d.admit(2, 60, 3, "api")
			_, err := d.part(2).Promote(t.Context(), "s", time.Second)
			check(t, err)
			if ended := d.end(2); n >= 6 {
				sent, passed = sent+ended, passed+got
			}
		}
		check(t, d.balancer.Step(t.Context()))
	}
	// Six steps are three seconds.
	if most := 3*int(rateOf4.Tokens) + int(rateOf4.Burst); sent < 3*int(rateOf4.Tokens)*9/10 || sent > most {
		t.Errorf("%d calls were sent, of at most %d", sent, most)
	}
	if most := 3*int(globalOf4.Tokens) + int(globalOf4.Burst); passed < 3*int(globalOf4.Tokens)*9/10 || passed > most {
		t.Errorf("%d jobs were admitted, of at most %d", passed, most)
	}
	if got := d.admit(0, 64, 1, ""); got != 64 {
		t.Errorf("%d of 64 jobs were admitted in a partition that was idle, which has its part of the burst", got)
	}
}

// TestACapIsDividedByTenants has one tenant wait in a partition and nine in another.
func TestACapIsDividedByTenants(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.admit(0, 1000, 1, "")
	d.admit(3, 1000, 9, "")
	for range 8 {
		d.steps(1)
		d.end(0)
		d.end(3)
	}
	if a, b := d.running(0), d.running(3); a < 8 || a > 12 || b < 84 || a+b > capOf4 {
		t.Errorf("%d and %d run of one tenant and of nine", a, b)
	}
}

// TestOthersExchangeSharesWhileAPartitionIsAway, and the one that is away keeps its own.
func TestOthersExchangeSharesWhileAPartitionIsAway(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.admit(0, 300, 1, "")
	d.admit(3, 300, 1, "")
	away := map[string][]fate{}
	for range 100 {
		away[d.part(3).conn.Partition.State()] = append(away[d.part(3).conn.Partition.State()], died)
	}
	d.line.begin(away)
	for range 8 {
		if err := d.balancer.Step(t.Context()); err == nil {
			t.Fatal("a partition that is away is no error")
		}
	}
	if a, b := d.running(0), d.running(3); a < 65 || a+b > capOf4 || b != capOf4/partsOf4 {
		t.Errorf("%d run, and %d in the partition that is away", a, b)
	}
	d.line.end()
	for range 4 {
		d.steps(1)
		d.end(0)
	}
	if a, b := d.running(0), d.running(3); a+b > capOf4 || b < 45 {
		t.Errorf("%d and %d run after it has come back", a, b)
	}
}

// TestAWordInDoubtIsNotHeededLater has a raise of a share arrive when its sender has given the units to another partition.
func TestAWordInDoubtIsNotHeededLater(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.admit(0, 300, 1, "")
	key := d.part(0).conn.Partition.State()
	d.line.begin(map[string][]fate{key: {carriedOut, carriedOut, late}}) // the look, the share in whole units, and the raise
	if err := d.balancer.Step(t.Context()); err == nil || d.line.end()[late] != 1 {
		t.Fatalf("a raise in doubt ended with %v", err)
	}
	d.admit(1, 300, 1, "")
	d.steps(4)
	if a, b := d.running(0), d.running(1); a+b < capOf4*9/10 {
		t.Fatalf("%d and %d run", a, b)
	}
	for _, args := range d.line.late() {
		check(t, redisconn.Client(d.part(0).conn).Do(t.Context(), args...).Err())
	}
	if a, b := d.running(0), d.running(1); a+b > capOf4 {
		t.Errorf("%d and %d run after an old word has arrived", a, b)
	}
}

// allowed returns how many jobs may run in all partitions.
func (d *divide4) allowed() (sum int) {
	d.t.Helper()
	for p := range partsOf4 {
		g, _, err := d.part(p).gateState(d.t.Context(), store.QueueGate("mail"))
		check(d.t, err)
		sum += g.Limit
	}
	return sum
}

// TestAnEditThatDiesLeavesSharesAsTheyAre stores a smaller cap, and a larger one, in one partition after the other.
func TestAnEditThatDiesLeavesSharesAsTheyAre(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.admit(3, 300, 1, "")
	d.steps(6)
	for version, limit := range []int{capOf4 / 2, 2 * capOf4, capOf4} {
		u := store.PolicyUpdate{
			Expected: int64(version + 1), Version: int64(version + 2), Text: []byte(`{}`), Window: time.Minute, Edit: strconv.Itoa(limit),
			Caps: []store.Cap{{Gate: store.QueueGate("mail"), Limit: limit}},
		}
		for p := range partsOf4 {
			check(t, d.part(p).StorePolicy(t.Context(), partOf(&u, p, partsOf4), nil))
			if sum := d.allowed(); sum > 2*capOf4 || limit < capOf4 && sum > capOf4 || p == partsOf4-1 && sum > limit {
				t.Errorf("%d may run where the cap has become %d in %d partitions", sum, limit, p+1)
			}
		}
	}
}

// TestACapIsLoweredFar to less than the parts of it can divide: a partition that has no whole unit waits until shares are balanced, which
// is no pause, and a pause that ends meanwhile gives it none.
func TestACapIsLoweredFar(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.admit(3, 300, 1, "")
	d.steps(6)
	d.put(store.Cap{Gate: store.QueueGate("mail"), Limit: partsOf4})
	d.admit(0, 10, 1, "")
	before := d.allRunning()
	if n := d.running(0); n > 0 || d.allowed() > partsOf4 {
		t.Errorf("%d run in a partition without a share, %d may in all", n, d.allowed())
	}
	queues, err := d.part(0).Queues(t.Context())
	check(t, err)
	if queues[0].Paused() || !queues[0].Gate.NoShare {
		t.Errorf("a partition without a share is shown as %+v", queues[0].Gate)
	}
	for _, lunch := range []time.Duration{time.Hour, 100 * time.Millisecond} {
		_, err = d.part(0).Pause(t.Context(), store.QueueGate("mail"), lunch, store.Intervention{Reason: "lunch"})
		check(t, err)
		d.pass(200 * time.Millisecond)
		_, err = d.part(0).Promote(t.Context(), "s", time.Second)
		check(t, err)
		was, err := d.part(0).Unpause(t.Context(), store.QueueGate("mail"), store.Intervention{})
		if check(t, err); was != (lunch == time.Hour) {
			t.Errorf("a pause of %s was there: %t", lunch, was)
		}
	}
	d.steps(2) // The jobs of the old cap run on.
	if n := d.allRunning(); n != before {
		t.Errorf("%d run, then %d, while those of the old cap do", before, n)
	}
	for range 100 {
		d.end(3)
		d.steps(1)
		n := d.allRunning()
		if n > max(before, partsOf4) {
			t.Fatalf("%d run, then %d, of a cap of %d", before, n, partsOf4)
		}
		before = n
	}
	if a, b := d.running(0), d.running(3); a == 0 || b == 0 || a+b > partsOf4 {
		t.Errorf("%d and %d run where both wait for a cap of %d", a, b, partsOf4)
	}
}

// TestACapIsRaisedBesideJobsOfAnOlderOne, of which a partition runs more than its part of either: the others wait for a look at all.
func TestACapIsRaisedBesideJobsOfAnOlderOne(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.admit(3, 3, 1, "")
	for _, limit := range []int{7, 8} {
		d.put(store.Cap{Gate: store.QueueGate("mail"), Limit: limit})
	}
	for p := range partsOf4 - 1 {
		d.admit(p, 100, 1, "")
	}
	for n := range 5 {
		if got := d.allRunning(); got > 8 || n > 0 && got < 8 {
			t.Errorf("%d of 8 run after %d looks", got, n)
		}
		d.steps(1)
	}
}

// TestACapThatComesBackFindsTheSharesThatAreInForce removes a cap by an edit that dies, and stores it anew by another.
func TestACapThatComesBackFindsTheSharesThatAreInForce(t *testing.T) {
	t.Parallel()
	d := newDivide4(t)
	d.admit(3, 300, 1, "")
	d.steps(6)
	u := store.PolicyUpdate{Expected: 1, Version: 2, Text: []byte(`{}`), Window: time.Minute, Edit: "gone"}
	check(t, d.part(0).StorePolicy(t.Context(), partOf(&u, 0, partsOf4), nil))
	u = store.PolicyUpdate{
		Expected: 2, Version: 3, Text: []byte(`{}`), Window: time.Minute, Edit: "back", Caps: []store.Cap{{Gate: store.QueueGate("mail"), Limit: capOf4}},
	}
	check(t, d.store.PutPolicy(t.Context(), u))
	if sum := d.allowed(); sum > capOf4 {
		t.Errorf("%d may run of %d: %q", sum, capOf4, d.fields())
	}
	d.end(3)
	d.put()
	d.steps(3)
	for p, text := range d.fields() {
		if text != "" {
			t.Errorf("partition %d keeps %q of a cap that has gone", p, text)
		}
	}
}
