package fairqueue

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/headgate/headgate/admission"
)

// TestWalks runs the walks in testdata, which read without Go. Their commands:
//
//	room                                     a new one; the pool "main" serves the queue "mail" with no slots
//	queue name=mail classes=high:3+low:1     other classes than high:3,medium:2,low:1
//	weight tenant=ann weight=2               in every class
//	slots n=6                                of the pool; then as many jobs are dispatched as fit
//	place tenant=ann [class=high] [cost=1] [n=1] [deadline=9] [to=api]    then dispatch
//	finish n=2 [cost=1]                      the oldest jobs in workers' hands end, and have cost so much each; then dispatch
//	back n=1                                 the oldest goes back unharmed; then dispatch
//	gate name=d:api limit=0 | none           then dispatch
//	tick to=10                               the time is 10 µs; timers run
//	state                                    everything that decides the order
//
// Each prints what was dispatched: the class's letter, the tenant, and the number of the job.
func TestWalks(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/walks", func(t *testing.T, path string) {
		t.Helper()
		w := &roomWalk{}
		datadriven.RunTest(t, path, w.run)
	})
}

type roomWalk struct {
	room    *Room
	now     int64
	jobs    int
	weights map[string]admission.Weight
}

func (w *roomWalk) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	call := func(change func(*Pass)) string {
		c := w.room.Begin(w.now)
		change(c)
		c.WakeFreed()
		return w.served(c, c.Fill())
	}
	switch d.Cmd {
	case "room":
		w.reset()
		return ""
	case "queue":
		var name, classes string
		d.ScanArgs(t, "name", &name)
		d.ScanArgs(t, "classes", &classes)
		w.room.AddQueue(name, parseClasses(t, classes))
		return ""
	case "weight":
		var tenant string
		var weight int
		d.ScanArgs(t, "tenant", &tenant)
		d.ScanArgs(t, "weight", &weight)
		w.weights[tenant] = admission.Weight(weight)
		return ""
	case "slots":
		d.ScanArgs(t, "n", &w.room.Pools["main"].Slots)
		return call(func(c *Pass) { c.Refill("main") })
	case "place":
		return call(func(c *Pass) { w.place(t, d, c) })
	case "finish":
		return call(func(c *Pass) { w.take(t, d, c, false) })
	case "back":
		return call(func(c *Pass) { w.take(t, d, c, true) })
	case "gate":
		return call(func(c *Pass) { w.gate(t, d, c) })
	case "tick":
		var to int
		d.ScanArgs(t, "to", &to)
		w.now = int64(to)
		return call(w.tick)
	case "state":
		return w.room.Dump() + "\n"
	}
	t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

func (w *roomWalk) reset() {
	*w = roomWalk{room: NewRoom(), weights: map[string]admission.Weight{}}
	w.room.AddPool("main", false, []string{"mail"}, []int{1})
	w.room.Weight = func(_ admission.Priority, tenant string) admission.Weight { return max(1, w.weights[tenant]) }
}

func parseClasses(t *testing.T, text string) []admission.Class {
	t.Helper()
	var classes []admission.Class
	for part := range strings.SplitSeq(text, "+") {
		name, weight, _ := strings.Cut(part, ":")
		n, err := strconv.Atoi(weight)
		if err != nil {
			t.Fatal(err)
		}
		classes = append(classes, admission.Class{Name: admission.Priority(name), Weight: n})
	}
	return classes
}

func (w *roomWalk) place(t *testing.T, d *datadriven.TestData, c *Pass) {
	t.Helper()
	class, cost, n, deadline, tenant, to := "high", 1, 1, 0, "", ""
	d.ScanArgs(t, "tenant", &tenant)
	d.MaybeScanArgs(t, "class", &class)
	d.MaybeScanArgs(t, "cost", &cost)
	d.MaybeScanArgs(t, "n", &n)
	dated := d.MaybeScanArgs(t, "deadline", &deadline)
	d.MaybeScanArgs(t, "to", &to)
	q := w.room.queue("mail")
	for range n {
		w.jobs++
		j := &Job{
			Tenant: tenant, ID: strconv.Itoa(w.jobs), Queue: "mail", Downstream: to, Dated: dated, Score: int64(deadline),
			Cost: admission.Tokens(cost), Seq: w.room.NextSeq(),
		}
		for i, name := range q.names {
			if string(name) == class {
				j.Class = i
			}
		}
		if !dated {
			j.Score = w.now + 1_000_000
		}
		c.Place(j)
	}
	c.RefillQueue("mail")
}

func (w *roomWalk) take(t *testing.T, d *datadriven.TestData, c *Pass, back bool) {
	t.Helper()
	n, cost := 1, -1
	d.MaybeScanArgs(t, "n", &n)
	d.MaybeScanArgs(t, "cost", &cost)
	p := w.room.Pools["main"]
	taken := p.Ready[:n]
	p.Ready = p.Ready[n:]
	for _, e := range taken {
		c.Release(w.room.Pools["main"], e)
		if back && !c.Return(e.Job) {
			c.Expired = append(c.Expired, e.Job)
		}
		if cost >= 0 {
			c.Rendered(e.Job, admission.Tokens(cost))
		}
	}
	c.Refill("main")
}

func (w *roomWalk) gate(t *testing.T, d *datadriven.TestData, c *Pass) {
	t.Helper()
	var name, limit string
	d.ScanArgs(t, "name", &name)
	d.ScanArgs(t, "limit", &limit)
	c.Freed(name)
	if limit == "none" {
		delete(w.room.Gates, name)
		return
	}
	n, err := strconv.Atoi(limit)
	if err != nil {
		t.Fatal(err)
	}
	if w.room.Gates[name] == nil {
		w.room.Gates[name] = &Gate{}
	}
	w.room.Gates[name].Limit = n
}

func (w *roomWalk) tick(c *Pass) {
	for _, timer := range slices.Sorted(maps.Keys(w.room.Timers)) {
		if w.room.Timers[timer] <= w.now && timer[0] == 'd' {
			delete(w.room.Timers, timer)
			c.Expired = append(c.Expired, c.ExpireLane(timer)...)
		}
	}
}

func (w *roomWalk) served(c *Pass, out []Dispatch) string {
	var words []string
	for _, d := range out {
		name := string(w.room.queue("mail").names[d.Job.Class])
		words = append(words, fmt.Sprintf("%s:%s%s", strings.ToUpper(name[:1]), d.Job.Tenant, d.Job.ID))
	}
	for _, j := range c.Expired {
		words = append(words, "expired:"+j.Tenant+j.ID)
	}
	if len(words) == 0 {
		return "nothing\n"
	}
	return strings.Join(words, " ") + "\n"
}
