package laws_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// mailPool serves one queue.
var mailPool = store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}

// longLease is longer than any test.
const longLease = time.Hour

// cycleOf writes one turn of the pattern: HHHMML as 000112.
func cycleOf(classes []admission.Class) (cycle []int) {
	for i, c := range classes {
		cycle = append(cycle, slices.Repeat([]int{i}, c.Weight)...)
	}
	return cycle
}

// checkStretch returns an error unless order is a stretch of the pattern, whatever its rotation.
func checkStretch(order []int, classes []admission.Class) error {
	cycle := cycleOf(classes)
	longest := 0
	for rotation := range cycle {
		n := 0
		for n < len(order) && order[n] == cycle[(rotation+n)%len(cycle)] {
			n++
		}
		if n == len(order) {
			return nil
		}
		longest = max(longest, n)
	}
	return fmt.Errorf("law L6: no stretch of the pattern after %d of %d dispatches: …%s", longest, len(order),
		letters(order[max(0, longest-20):min(len(order), longest+20)], classes))
}

func letters(order []int, classes []admission.Class) string {
	var text strings.Builder
	for _, class := range order {
		text.WriteString(strings.ToUpper(string(classes[class].Name[:1])))
	}
	return text.String()
}

func TestCheckStretchTellsAStretchFromAnyOtherOrder(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": true, "000112000112": true, "120001120": true, "2000": true, "00112000": true,
		"0000": false, "0001200011": false, "00011200012": false, "21": false, "000112001120": false,
	} {
		order := make([]int, len(text))
		for i := range text {
			order[i] = int(text[i] - '0')
		}
		if err := checkStretch(order, admission.DefaultClasses()); (err == nil) != want {
			t.Errorf("order %q: got %v, want a stretch: %t", text, err, want)
		}
	}
}

// TestPatternKeepsItsPhaseWhileClassesFlicker asserts L6 where classes come and go: the order is exactly what a
// pattern gives whose phase is never reset and in which an empty class forfeits the rest of its turn; and Low never
// waits for more than one turn of all others, however often Medium is empty.
func TestPatternKeepsItsPhaseWhileClassesFlicker(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		classes []admission.Class
		pools   []store.Pool
	}{
		"three classes": {admission.DefaultClasses(), []store.Pool{mailPool}},
		"four classes":  {policy.PresetCritical(), []store.Pool{mailPool}},
		"two pools":     {admission.DefaultClasses(), []store.Pool{mailPool, rescuePool}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlicker(t, row.classes, row.pools)
			for f.dispatches < 1200 {
				f.step()
			}
		})
	}
}

// flicker is a queue in which classes come and go. A call fills its pools in the order of their ids.
type flicker struct {
	*site
	classes  []admission.Class
	pattern  *fairqueue.Pattern
	pools    []store.Pool
	watchers []*watcher
	// waiting counts jobs in lanes by class; sinceLow the dispatches since the last class was served or came back.
	waiting    []int
	sinceLow   int
	held       [][]store.Lease // by pool
	dispatches int
	// lull counts the steps until jobs come in bursts again; in it one comes at a time, at most.
	lull int
}

func newFlicker(t *testing.T, classes []admission.Class, pools []store.Pool) *flicker {
	t.Helper()
	s := newSite(t, redistest.Shared(t))
	f := &flicker{site: s, classes: classes, waiting: make([]int, len(classes)), pools: pools}
	slices.SortFunc(f.pools, func(a, b store.Pool) int { return strings.Compare(a.ID(), b.ID()) })
	weights := make([]int, len(classes))
	for i, c := range classes {
		weights[i] = c.Weight
	}
	f.pattern = fairqueue.NewPattern(weights)
	s.putPolicy(store.PolicyUpdate{Queues: []store.QueueSettings{{Queue: "mail", Classes: classes, Horizon: time.Hour}}})
	for i, pool := range f.pools {
		s.register("w"+strconv.Itoa(i), pool, s.between(2, 9), longLease)
		f.watchers = append(f.watchers, s.watch(pool))
		f.held = append(f.held, nil)
	}
	return f
}

// step admits a burst, so that the first classes nearly always have jobs, the last mostly, those between come and go;
// then ends some of the jobs held, and now and then hands one back.
func (f *flicker) step() {
	var jobs []store.Candidate
	add := func(class, n int) {
		for range n {
			jobs = append(jobs, f.job(fmt.Sprintf("t%d", f.between(0, 5)), "mail", class, f.classes))
		}
		f.place(class, n)
	}
	last := len(f.classes) - 1
	if f.lull--; f.chance(60) {
		f.lull = 25
	}
	if f.lull > 0 && f.chance(2) {
		add(f.between(0, last), 1)
	}
	for class := range f.classes {
		switch {
		case f.lull > 0:
		case class == 0 && f.waiting[0] < 3 && !f.chance(20), class == last && f.waiting[last] < 2 && !f.chance(5):
			add(class, f.between(1, 12))
		case class > 0 && class < last && f.chance(2):
			add(class, f.between(1, 3))
		}
	}
	if len(jobs) > 0 {
		f.admit(jobs...)
		f.observe()
	}
	i := f.between(0, len(f.pools)-1)
	f.held[i] = append(f.held[i], f.read("w"+strconv.Itoa(i), f.pools[i], f.between(1, 9))...)
	n := f.between(0, len(f.held[i]))
	if n == 0 {
		return
	}
	f.finish(f.pools[i], f.held[i][:n], func(l store.Lease) store.Finish {
		if f.chance(6) {
			f.place(l.Class, 1)
			return finishAs(l, store.Release, 0)
		}
		return complete(l)
	})
	f.held[i] = f.held[i][n:]
	f.observe()
}

// place books jobs that the next call puts into lanes. A class that was empty begins to wait anew.
func (f *flicker) place(class, n int) {
	if class == len(f.classes)-1 && f.waiting[class] == 0 {
		f.sinceLow = 0
	}
	f.waiting[class] += n
}

func (f *flicker) observe() {
	f.Helper()
	last, others := len(f.classes)-1, 0
	for _, c := range f.classes[:last] {
		others += c.Weight
	}
	var all []dispatch
	for _, w := range f.watchers {
		all = append(all, w.next()...)
	}
	for _, d := range all {
		want, ok := f.pattern.Next(func(i int) bool { return f.waiting[i] > 0 })
		if !ok || want != d.class {
			f.Fatalf("law L6: dispatch %d is of class %d, want %d (waiting %v)", f.dispatches, d.class, want, f.waiting)
		}
		f.pattern.Commit(want)
		f.waiting[want]--
		f.dispatches++
		f.sinceLow++
		if want == last {
			f.sinceLow = 0
		}
		if f.waiting[last] > 0 && f.sinceLow > others {
			f.Fatalf("law L6: the last class waits for more than %d dispatches", others)
		}
	}
}

// TestPatternHoldsBesideGatedTenants asserts L6 with a tenant in each class that is paused or capped, at random, while
// others have jobs in every class: the order is a stretch of the pattern all the time, and nobody passes a gate.
func TestPatternHoldsBesideGatedTenants(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	classes := admission.DefaultClasses()
	const dispatches = 3000
	tenants := []string{"gated", "gated", "free-1", "free-2", "free-3"}
	var jobs []store.Candidate
	for range dispatches / 6 * 5 / 2 {
		for _, class := range cycleOf(classes) {
			j := s.job(choose(s, tenants...), "mail", class, classes)
			if j.Job.Tenant == "gated" || s.chance(8) {
				j.Job.Downstream = choose(s, "", "api", "db")
			}
			jobs = append(jobs, j)
		}
	}
	s.random.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	s.admit(jobs...)
	w := s.watch(mailPool)
	s.register("w", mailPool, 24, longLease)
	gates := []store.GateName{
		store.TenantGate("gated"), store.TenantQueueGate("gated", "mail"), store.DownstreamGate("api"), store.DownstreamGate("db"),
	}
	limits := map[store.GateName]int{}
	var order []int
	var held []store.Lease
	for len(order) < dispatches {
		passed := map[store.GateName]int{}
		for _, d := range w.next() {
			order = append(order, d.class)
			for _, name := range gatesOver(d) {
				passed[name]++
			}
		}
		s.checkPassed(limits, passed)
		if s.chance(6) {
			name := choose(s, gates...)
			limits[name] = choose(s, 0, 0, 1, 3, store.Unlimited)
			s.setGate(name, limits[name])
		} else {
			held = append(held, s.read("w", mailPool, s.between(1, 24))...)
			s.random.Shuffle(len(held), func(i, k int) { held[i], held[k] = held[k], held[i] })
			n := s.between(0, len(held))
			s.finish(mailPool, held[:n], complete)
			held = held[n:]
		}
		s.promote()
	}
	s.check(checkStretch(order, classes))
}

// TestLoneJobWaitsForItsTurn asserts the order where a call has run out of moves: there is room, and jobs wait for the
// next call to go on. A job that comes alone then must not go before them: in their class it is the last, and in
// another it has its turn when that of theirs is over.
func TestLoneJobWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	classes := admission.DefaultClasses()
	for class, place := range map[int]int{0: 2 * maxMoves, 2: maxMoves + 2} { // 64 are 21 turns of three, and one.
		s := newSite(t, redistest.Shared(t))
		var jobs []store.Candidate
		for range 2 * maxMoves {
			jobs = append(jobs, s.job("ann", "mail", 0, classes))
		}
		s.admit(jobs...)
		s.register("w", mailPool, 4*maxMoves, longLease)
		late := s.job("ann", "mail", class, classes)
		s.admit(late)
		for s.promote().More {
		}
		all := s.watch(mailPool).next()
		if n := len(all); n != len(jobs)+1 || all[place].id != late.Job.ID {
			t.Errorf("class %s: %d jobs were dispatched, at place %d is %s; want %d and %s",
				classes[class].Name, n, place, all[place].id, len(jobs)+1, late.Job.ID)
		}
	}
}

func gatesOver(d dispatch) []store.GateName {
	names := []store.GateName{store.TenantGate(d.tenant), store.TenantQueueGate(d.tenant, "mail")}
	if d.downstream != "" {
		names = append(names, store.DownstreamGate(d.downstream))
	}
	return names
}

// checkPassed counts what stands in the ready stream under each gate.
func (s *site) checkPassed(limits, passed map[store.GateName]int) {
	s.Helper()
	held := map[store.GateName]int{}
	for _, d := range s.watch(mailPool).next() {
		for _, name := range gatesOver(d) {
			held[name]++
		}
	}
	for name, limit := range limits {
		if limit >= 0 && passed[name] > 0 && held[name] > limit {
			s.Fatalf("gate %s: %d passed, %d are held, limit %d", name, passed[name], held[name], limit)
		}
	}
}
