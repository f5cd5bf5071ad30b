package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// TestSharesNeverExceedTheWhole (laws L1 and gates): several processes balance the shares of a cap, a dispatch rate and the global
// limit at once, die or lose an answer at any of their calls, or have one arrive late; the policy is edited, by processes that die
// too; the clock of each Redis steps; jobs come and end. At every moment what runs and what was admitted is within the whole.
func TestSharesNeverExceedTheWhole(t *testing.T) {
	t.Parallel()
	prefix, run, reached := redistest.Prefix(t), 0, map[string]int{}
	var clients [dividedProcesses]*redis.Client
	var lines [dividedProcesses]*badLine
	for i := range clients {
		clients[i], lines[i] = redistest.Shared(t).Client(t), &badLine{}
		if i > 0 {
			clients[i].AddHook(lines[i])
		}
	}
	for parts := leastDivided; parts <= mostDivided; parts++ {
		check(t, clients[0].ScriptLoad(t.Context(), textOf(shareOf(parts))).Err()) // A bad line knows it by its sum.
	}
	for range 3 { // What is asked for below is rare.
		rapid.Check(t, func(rt *rapid.T) {
			run++
			defer redistest.Clear(t, prefix+"-"+strconv.Itoa(run))
			d := newDivided(t, rt, clients, lines, prefix+"-"+strconv.Itoa(run))
			d.reached = reached
			d.edit()
			for range 30 {
				d.act()
			}
		})
	}
	t.Log(reached)
	for _, what := range []string{"died", "answer lost", "late", "moved", "cap full", "rate spent", "refused", "kept", "edit died", "stepped", "no share"} {
		if reached[what] == 0 {
			t.Errorf("never reached: %s", what)
		}
	}
}

// divided is a deployment of several partitions, each with a clock of its own, and the books of a test about it.
type divided struct {
	t       *testing.T
	rt      *rapid.T
	reached map[string]int

	// stores are the deployment as each of the processes sees it; the first one never fails.
	stores    []*many
	balancers []*balancer
	lines     [dividedProcesses]*badLine
	tenants   []string // one in each partition
	now       int64    // the true time, in microseconds
	offsets   []int64  // of each partition's clock
	jobs      int

	version int64
	most    int // of the caps
	// cap is what the policy allows, and allowed the most of those since the last edit was done, or what was in force then.
	cap, allowed int
	held         [][]store.Lease
	// sent is of the dispatch rate, passed of the global limit, and others of what those have of that from whom a part of it is kept.
	sent, passed, others bound
}

// bound is a token bucket over all partitions. extra are the tokens that clocks have brought that stepped forward.
type bound struct {
	limit        admission.Limit
	level, extra float64
	at           int64
}

func newBound(limit admission.Limit, now int64) bound {
	return bound{limit: limit, level: float64(limit.Burst), at: now}
}

// take returns how many tokens are left after so many were taken.
func (b *bound) take(now int64, n int) float64 {
	b.level = min(float64(b.limit.Burst), b.level+float64(b.limit.Rate())*float64(now-b.at)/1e6) - float64(n)
	b.at = now
	return b.level + b.extra
}

const dividedProcesses = 3

func newDivided(t *testing.T, rt *rapid.T, clients [dividedProcesses]*redis.Client, lines [dividedProcesses]*badLine, prefix string) *divided {
	t.Helper()
	d := &divided{t: t, rt: rt, lines: lines, now: 1_700_000_000_000_000}
	parts := rapid.IntRange(leastDivided, mostDivided).Draw(rt, "partitions")
	for _, line := range lines {
		line.late() // What another run has left is not this one's.
	}
	for _, client := range clients {
		s, err := openMany(t.Context(), client, Config{Prefix: prefix, Partitions: parts})
		check(t, err)
		d.stores, d.balancers = append(d.stores, s), append(d.balancers, s.newBalancer())
	}
	d.most = rapid.SampledFrom([]int{40, 400}).Draw(rt, "most")
	d.offsets, d.held = make([]int64, parts), make([][]store.Lease, parts)
	for p := range parts {
		for n := 0; len(d.tenants) == p; n++ {
			if name := fmt.Sprint("tenant-", n); d.stores[0].PartitionOf(name) == p {
				d.tenants = append(d.tenants, name)
			}
		}
	}
	d.advance(0)
	for _, part := range d.parts() {
		_, err := part.Register(t.Context(), "w", yardPool, 200, time.Hour)
		check(t, err)
	}
	rate := admission.PerSecond(admission.Tokens(rapid.IntRange(1, 12).Draw(rt, "rate"))).WithBurst(admission.Tokens(rapid.IntRange(parts, 12).Draw(rt, "burst")))
	d.sent = newBound(rate, d.now)
	d.passed = newBound(admission.PerSecond(4*rate.Tokens).WithBurst(2*rate.Burst).Keeping(40), d.now)
	others, _ := d.passed.limit.Others()
	d.others = newBound(others, d.now)
	return d
}

func (d *divided) parts() []*Partition { return d.stores[0].parts }

func (d *divided) draw(most int, label string) int {
	return rapid.IntRange(0, most-1).Draw(d.rt, label)
}

// advance lets time pass, by each partition's clock.
func (d *divided) advance(by time.Duration) {
	d.now += by.Microseconds()
	for _, s := range d.stores {
		for p, part := range s.parts {
			part.conn.Now = strconv.FormatInt(d.now+d.offsets[p], 10)
		}
	}
}

func (d *divided) act() {
	switch p := d.draw(len(d.tenants), "partition"); d.draw(14, "act") {
	case 0, 1, 2:
		d.balance(1 + d.draw(dividedProcesses-1, "process"))
	case 3:
		d.balance(0)
	case 4:
		d.edit()
	case 5:
		check(d.t, d.stores[0].SpreadPolicy(d.t.Context()))
	case 6:
		d.step(p)
	case 7:
		d.deliver(1 + d.draw(dividedProcesses-1, "process"))
	case 8, 9:
		d.end(p)
	default:
		d.admit(p)
	}
	d.assert()
	d.advance(time.Duration(d.draw(300, "ms")) * time.Millisecond)
	for _, part := range d.parts() {
		_, err := part.Promote(d.t.Context(), "s", time.Second)
		check(d.t, err)
	}
	d.assert()
}

// balance makes a step of a process whose calls end as is drawn.
func (d *divided) balance(process int) {
	fates := map[string][]fate{}
	for _, part := range d.parts() {
		for range 3 { // calls of a step
			f := fate(max(0, d.draw(8, "fate")-4))
			fates[part.conn.Partition.State()] = append(fates[part.conn.Partition.State()], f)
		}
	}
	d.lines[process].begin(fates)
	before := d.limits()
	err := d.balancers[process].Step(d.t.Context())
	if process == 0 && err != nil {
		d.t.Fatal(err)
	}
	for f, n := range d.lines[process].end() {
		d.reached[fateNames[f]] += n
	}
	if fmt.Sprint(before) != fmt.Sprint(d.limits()) {
		d.reached["moved"]++
	}
}

// edit stores another cap, by a process that may die before each partition has it, and lets another finish an older one.
func (d *divided) edit() {
	limit := rapid.IntRange(len(d.tenants), rapid.SampledFrom([]int{2 * len(d.tenants), d.most}).Draw(d.rt, "up to")).Draw(d.rt, "cap")
	u := store.PolicyUpdate{
		Expected: d.version, Version: d.version + 1, Text: []byte(`{}`), Window: time.Minute, Edit: strconv.FormatInt(d.version, 10),
		Caps: []store.Cap{{Gate: store.QueueGate("mail"), Limit: limit}, {Gate: store.DownstreamRateGate("api"), Rate: d.sent.limit}},
	}
	if d.draw(6, "gone") == 0 {
		u.Caps, limit = u.Caps[1:], 1000
	}
	as := d.stores[0]
	if d.version > 0 && d.draw(2, "dies") == 0 {
		d.reached["edit died"]++
		as = dyingAfter(d.t, as, 1+d.draw(len(d.tenants)-1, "after"))
		for p, part := range as.parts {
			part.conn.Now = d.parts()[p].conn.Now
		}
	}
	err := as.PutPolicy(d.t.Context(), u)
	if err != nil && !errors.Is(err, errDied) {
		d.t.Fatal(err)
	}
	d.version, d.cap, d.allowed = u.Version, limit, max(d.allowed, limit)
}

// step lets the clock of a partition step, which may bring its buckets a burst.
func (d *divided) step(p int) {
	d.reached["stepped"]++
	by := rapid.SampledFrom([]int64{-3_600_000_000, -4_000_000, 1_000_000, 4_000_000, 60_000_000}).Draw(d.rt, "step")
	d.offsets[p] += by
	d.advance(0)
	if by > 0 {
		for _, b := range []*bound{&d.sent, &d.passed, &d.others} {
			b.extra += float64(b.limit.Burst)/float64(len(d.tenants)) + 1 // A part in whole tokens may be that much larger.
		}
	}
}

// admit sends some jobs to a partition.
func (d *divided) admit(p int) {
	part := d.parts()[p]
	version, _, err := part.PolicyEdit(d.t.Context())
	check(d.t, err)
	jobs := make([]store.Candidate, 1+d.draw(24, "jobs"))
	for i := range jobs {
		d.jobs++
		j := mail(d.tenants[p], strconv.Itoa(d.jobs))
		if d.draw(2, "downstream") == 0 {
			j.Downstream = "api"
		}
		jobs[i] = store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{d.passed.limit}}
		if d.draw(2, "kept for it") == 0 { // What is kept goes by the class: jobs of one have one path.
			j.Priority, jobs[i].Class, jobs[i].Limits[admission.LevelGlobal] = admission.High, 0, d.passed.limit.Keeping(0)
		}
	}
	verdicts, err := part.Admit(d.t.Context(), version, jobs)
	check(d.t, err)
	for i, v := range verdicts {
		if v.Decision != admission.Admitted {
			if d.reached["refused"]++; store.IsKept(&v) {
				d.reached["kept"]++
			}
			continue
		}
		if over := d.passed.take(d.now, 1); over < -1e-3 {
			d.rt.Fatalf("%g more were admitted than the limit %+v has let in", -over, d.passed.limit)
		}
		if _, other := jobs[i].Limits[admission.LevelGlobal].Others(); !other {
			continue
		}
		if over := d.others.take(d.now, 1); over < -1e-3 {
			d.rt.Fatalf("%g more of others were admitted than %+v has let in", -over, d.others.limit)
		}
	}
}

// end completes some of the jobs that run in a partition.
func (d *divided) end(p int) {
	n := min(len(d.held[p]), 1+d.draw(30, "ended"))
	if n == 0 {
		return
	}
	ends := make([]store.Finish, n)
	for i, l := range d.held[p][:n] {
		ends[i] = store.Finish{Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: store.Complete}
	}
	d.held[p] = d.held[p][n:]
	_, _, err := d.parts()[p].Finish(d.t.Context(), yardPool.ID(), "w", ends)
	check(d.t, err)
}

// deliver lets what a process has sent arrive, after all.
func (d *divided) deliver(process int) {
	for _, args := range d.lines[process].late() {
		for _, part := range d.parts() {
			if args[3] == part.conn.Partition.State() {
				args[4] = part.conn.Now
			}
		}
		check(d.t, redisconn.Client(d.stores[0].parts[0].conn).Do(d.t.Context(), args...).Err())
		d.reached["delivered"]++
	}
}

// limits are the shares of the cap.
func (d *divided) limits() []string {
	d.t.Helper()
	pipe := redisconn.Client(d.stores[0].parts[0].conn).Pipeline()
	for _, part := range d.parts() {
		pipe.HGet(d.t.Context(), part.conn.Partition.Base()+"shares", string(store.QueueGate("mail")))
	}
	return d.texts(pipe)
}

// texts sends reads in one go and returns what they found, "" for nothing.
func (d *divided) texts(pipe redis.Pipeliner) (texts []string) {
	d.t.Helper()
	reads, err := pipe.Exec(d.t.Context())
	if err != nil && !redisconn.IsNil(err) {
		d.t.Fatal(err)
	}
	for _, read := range reads {
		text, _ := read.(*redis.StringCmd)
		texts = append(texts, text.Val())
	}
	return texts
}

// assert reads what was dispatched, and compares what runs and what may with what is allowed.
func (d *divided) assert() {
	d.t.Helper()
	pipe := redisconn.Client(d.stores[0].parts[0].conn).Pipeline()
	for p, part := range d.parts() {
		d.read(p, part)
		pipe.HGet(d.t.Context(), part.conn.Partition.Gates(), string(store.QueueGate("mail")))
		pipe.HGet(d.t.Context(), part.conn.Partition.State(), "pv")
	}
	held, limits, inForce, settled := 0, 0, 0, true
	texts := d.texts(pipe)
	for p := range d.held {
		gate, version := texts[2*p], texts[2*p+1]
		held += len(d.held[p])
		settled = settled && redisconn.Whole(version) == d.version
		if gate == "" {
			continue
		}
		g, err := codec.ParseGate(string(store.QueueGate("mail")), gate, nil)
		check(d.t, err)
		if g.Held != len(d.held[p]) {
			d.rt.Fatalf("partition %d counts %d jobs, %d run", p, g.Held, len(d.held[p]))
		}
		if g.Held >= g.Limit {
			d.reached["cap full"]++
		}
		limits += g.Limit
		inForce += max(g.Limit, g.Held)
		if g.NoShare {
			d.reached["no share"]++
		}
	}
	if settled && limits > d.cap {
		d.rt.Fatalf("the parts of a cap of %d are %d in all: shares %q", d.cap, limits, d.limits())
	}
	if held > d.allowed || inForce > d.allowed {
		d.rt.Fatalf("%d jobs run and %d may, of %d: shares %q", held, inForce, d.allowed, d.limits())
	}
	if settled && !d.underWay() {
		d.allowed = max(d.cap, inForce)
	}
}

// read takes what was dispatched in a partition.
func (d *divided) read(p int, part *Partition) {
	d.t.Helper()
	leases, err := part.Read(d.t.Context(), "w", yardPool.ID(), 1000, -1, false)
	check(d.t, err)
	sent := 0
	for _, l := range leases {
		if l.Job.Downstream != "" {
			sent++
		}
	}
	d.held[p] = append(d.held[p], leases...)
	if over := d.sent.take(d.now, sent); over < -1e-3 {
		d.rt.Fatalf("%g more were dispatched than the rate %+v has let through", -over, d.sent.limit)
	}
	if sent > 0 && d.sent.level < float64(len(d.tenants)) {
		d.reached["rate spent"]++
	}
}

// underWay reports whether a word is still to arrive that a partition would heed: what it gives is in nobody's share yet.
func (d *divided) underWay() bool {
	for _, line := range d.lines {
		for _, args := range line.waiting() {
			key, _ := args[3].(string)
			ballot, err := redisconn.Client(d.stores[0].parts[0].conn).HGet(d.t.Context(), key, "sb").Result()
			if err != nil && !redisconn.IsNil(err) {
				d.t.Fatal(err)
			}
			number, rest, _ := strings.Cut(ballot, "|")
			owner, _, _ := strings.Cut(rest, "|")
			if sent, _ := args[5].(int64); sent > redisconn.Whole(number) || sent == redisconn.Whole(number) && args[6] == owner {
				return true
			}
		}
	}
	return false
}
