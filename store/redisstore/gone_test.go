package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestAJobWithoutItsRecordIsCountedAndHoldsNobodyUp: whatever place its record is taken away in, no script fails, the others go on, and
// in the end all are accounted for, the lost ones under a name of their own.
func TestAJobWithoutItsRecordIsCountedAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	const most = 4
	for name, row := range map[string]struct {
		overflow store.Overflow
		draw     func(j *admission.Job)
		before   func(y *goneYard)
		copied   bool // an entry of a ready stream has a copy
	}{
		"lane":      {},
		"dated":     {draw: func(j *admission.Job) { j.Deadline = time.UnixMicro(ahead()).Add(time.Hour) }},
		"late":      {draw: func(j *admission.Job) { j.Deadline = time.UnixMicro(ahead()).Add(time.Second) }, before: func(y *goneYard) { y.pass(time.Minute) }},
		"later":     {draw: func(j *admission.Job) { j.Delay = time.Second }},
		"gate":      {draw: func(j *admission.Job) { j.Downstream = "api" }},
		"ready":     {before: func(y *goneYard) { y.register(16) }, copied: true},
		"held":      {before: func(y *goneYard) { y.register(16); y.take() }, copied: true},
		"finished":  {before: func(y *goneYard) { y.register(16); y.take(); y.lives = true }, copied: true},
		"dead":      {before: func(y *goneYard) { y.killAll() }},
		"spilled":   {overflow: store.Overflow{Policy: store.Spillover, MaxJobs: most, MaxSpilled: 100, LowWater: 100}},
		"bounded":   {overflow: store.Overflow{Policy: store.DropOldest, MaxJobs: 100}},
		"suspected": {before: func(y *goneYard) { y.register(16); y.take(); y.pass(2 * time.Minute) }, copied: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := &goneYard{yard: newYard(t), now: ahead()}
			y.pass(0)
			check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
				Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, Overflow: row.overflow,
				MaxDead: 100, KeepDead: time.Hour,
			}}}))
			_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.DownstreamGate("api"), Limit: 3})
			check(t, err)
			const jobs = 2 * most
			for i := range jobs {
				j := mail("acme", fmt.Sprint("job-", i))
				if row.draw != nil {
					row.draw(&j)
				}
				y.admitAt(1, j)
			}
			if row.before != nil {
				row.before(y)
			}
			for _, i := range []int{0, 2, jobs - 1} {
				n, err := y.client.HDel(t.Context(), y.store.Keys().Jobs(), fmt.Sprint("acme:job-", i)).Result()
				if n != 1 || err != nil {
					t.Fatalf("%d records taken away: %v", n, err)
				}
			}
			counted := 3
			if row.copied {
				counted = 0
			}
			y.settle(counted)
		})
	}
}

// TestALetterWithoutItsRecordIsNotRunAgain: its record is taken away when somebody has read it to run it again. It is told as no dead letter,
// those beside it run, and whoever purges it counts it.
func TestALetterWithoutItsRecordIsNotRunAgain(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	y.admit(mail("acme", "a"), mail("acme", "b"))
	y.killAll()
	keys := []admission.Key{{Tenant: "acme", ID: "a"}, {Tenant: "acme", ID: "b"}}
	letters, err := y.store.Letters(t.Context(), keys)
	check(t, err)
	again := make([]store.Candidate, len(letters))
	for i := range letters {
		again[i], err = letters[i].Redrive(1, &[admission.Levels]admission.Limit{})
		check(t, err)
	}
	check(t, y.client.HDel(t.Context(), y.store.Keys().Jobs(), "acme:a").Err())
	verdicts, err := y.store.Admit(t.Context(), 0, again)
	check(t, err)
	if verdicts[0].Reason != admission.ReasonGone || verdicts[1].Decision != admission.Admitted {
		t.Errorf("got %+v", verdicts)
	}
	purged, err := y.store.Purge(t.Context(), keys[:1], store.Intervention{Author: "ada"})
	check(t, err)
	c, err := y.store.Census(t.Context())
	check(t, err)
	if !purged[0] || c.Dead != 0 || c.Ready != 1 || c.Left["record_gone"] != 1 || !c.Conserved() {
		t.Errorf("purged %t: %+v", purged[0], c)
	}
}

// TestAnEntryThatSomebodyDeletedKeepsNobodysJob: a worker is lost with an entry that is no longer in its stream. The others come back.
func TestAnEntryThatSomebodyDeletedKeepsNobodysJob(t *testing.T) {
	t.Parallel()
	y := &goneYard{yard: newYard(t), now: ahead()}
	y.pass(0)
	y.admit(mail("acme", "a"), mail("acme", "b"), mail("acme", "c"))
	y.register(3)
	held := y.take()
	check(t, y.client.XDel(t.Context(), y.store.Keys().Ready(yardPool.ID()), held[1].Token).Err())
	y.pass(time.Hour)
	y.promoteAll()
	y.pass(time.Hour)
	y.promoteAll()
	c, err := y.store.Census(t.Context())
	check(t, err)
	if c.Waiting != 2 || c.Ready != 0 || c.Live != 3 || !c.Known() || c.Conserved() {
		t.Errorf("got %+v", c)
	}
	if n := y.client.HGet(t.Context(), y.store.Keys().State(), "stranded").Val(); n != "" {
		t.Errorf("%s are stranded", n)
	}
}

// goneYard is a yard whose time the test passes.
type goneYard struct {
	*yard
	now int64
	// lives says that the first worker ends what it holds.
	lives bool
}

func (y *goneYard) pass(d time.Duration) {
	y.now += d.Microseconds()
	y.store.conn.Now = strconv.FormatInt(y.now, 10)
}

func (y *goneYard) take() []store.Lease {
	y.tb.Helper()
	leases, err := y.store.Read(y.tb.Context(), "w1", yardPool.ID(), 16, -1, false)
	check(y.tb, err)
	return leases
}

func (y *goneYard) killAll() {
	y.tb.Helper()
	y.register(16)
	for _, l := range y.take() {
		y.end(l, store.Kill)
	}
}

func (y *goneYard) end(l store.Lease, outcome store.Outcome) {
	y.tb.Helper()
	f := l.Finish(outcome)
	if f.Reason = "discarded"; l.Err != nil {
		f.Outcome, f.Reason = store.Kill, "record_gone"
	}
	_, _, err := y.store.Finish(y.tb.Context(), yardPool.ID(), "w1", []store.Finish{f})
	check(y.tb, err)
}

// settle lets workers come, one of them die with what it holds, and all end, also the letters. Every job is accounted for then.
func (y *goneYard) settle(counted int) {
	y.tb.Helper()
	y.register(16)
	outcomes := []store.Outcome{store.Release, store.Retry, store.Complete}
	for round := range 12 {
		leases, err := y.store.Read(y.tb.Context(), "w1", yardPool.ID(), 16, -1, round == 0)
		check(y.tb, err)
		for i, l := range leases {
			if round > 0 || y.lives { // Else those of the first are lost with their worker.
				y.end(l, outcomes[min((round+i)%3, 2)])
			}
		}
		y.pass(2 * time.Minute)
		y.promoteAll()
		y.register(16)
	}
	for _, l := range y.take() {
		y.end(l, store.Complete)
	}
	y.pass(2 * time.Hour) // Letters go.
	y.promoteAll()
	c, err := y.store.Census(y.tb.Context())
	check(y.tb, err)
	if n := c.Left["record_gone"] + c.Died["record_gone"]; !c.Conserved() || c.Live != 0 || n != int64(counted) {
		y.tb.Errorf("%d are counted as lost, want %d: %+v", n, counted, c)
	}
	if g, _, err := y.store.gateState(y.tb.Context(), store.DownstreamGate("api")); err != nil || g.Held != 0 {
		y.tb.Errorf("the gate holds %+v, %v", g, err)
	}
}
