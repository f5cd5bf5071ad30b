package crash_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// loopsAtATime are walked beside each other. They wait nearly all of the time.
const loopsAtATime = 12

// TestASchedulerDiesAtEachWriteOfALoop kills one at each of the writes by which the limits of a queue and the global one fall over two partitions, before
// Redis has it or after. Each partition then has a limit that was in force before or that the process asked for, between the bounds of the policy, and what
// admission goes by is that limit; another scheduler goes on from there, all partitions come to the same, and no job is lost.
func TestASchedulerDiesAtEachWriteOfALoop(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var running sync.WaitGroup
	for _, cut := range []redistest.Cut{redistest.CutBefore, redistest.CutAfter} {
		redistest.EveryPoint(t, &running, loopsAtATime, "loops", cut, 10, func(t *testing.T, k int) (killed, over bool) {
			t.Helper()
			killed = newLoopWalk(t, server, k, cut).walk()
			return killed, !killed
		})
	}
	running.Wait()
}

// loopWalk is one run.
type loopWalk struct {
	*desk
	cast      *cast
	scheduler *actor
	dead      chan struct{}
	mu        struct {
		sync.Mutex
		writes int
		// asked are the limits that were asked for, in thousandths, by gate.
		asked map[store.GateName][]int
	}
}

const loopJobs = 60

var (
	loopGates = []store.GateName{store.GlobalLimitGate, store.QueueLimitsGate("mail")}
	loopLeast = map[store.GateName]int{store.GlobalLimitGate: 850, store.QueueLimitsGate("mail"): 850}
)

// newLoopWalk starts a scheduler in a process of its own, which dies at its kth write for loops.
func newLoopWalk(t *testing.T, server *redistest.Server, k int, cut redistest.Cut) *loopWalk {
	t.Helper()
	w := &loopWalk{desk: newDesk(t, server), cast: newCast(t, server), dead: make(chan struct{})}
	var err error
	w.prefix = redistest.Prefix(t)
	w.store, err = redisstore.Open(t.Context(), w.client, redisstore.Config{Prefix: w.prefix, Partitions: 2})
	w.check(err)
	w.cast.prefix, w.mu.asked = w.prefix, map[store.GateName][]int{}
	p := policy.Unlimited()
	p.Global = admission.PerSecond(1000)
	p.Queues = map[string]policy.Queue{"mail": {
		EachTenant: policy.EachTenant{Limit: admission.PerSecond(100)}, Pressure: &policy.PressureRules{MaxDepth: loopJobs / 2, Interval: 200 * time.Millisecond},
	}}
	p.Adaptive = map[string]policy.Adaptive{
		"in":  {Of: "queue mail", Min: loopLeast[store.QueueLimitsGate("mail")] / 10, Interval: 200 * time.Millisecond},
		"all": {Of: "global", Min: loopLeast[store.GlobalLimitGate] / 10, Interval: 200 * time.Millisecond},
	}
	_, err = rollout.Put(t.Context(), w.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	w.check(err)
	version, err := w.store.PolicyInForce(t.Context())
	w.check(err)
	for n := range loopJobs {
		j := admission.NewJob("acme", "mail", "send", nil)
		j.ID = strconv.Itoa(n)
		_, err := w.store.Partitions()[n%2].Admit(t.Context(), version, []store.Candidate{candidate(j)})
		w.check(err)
	}
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !w.counts(c, k) {
			return redistest.Action{}
		}
		return redistest.Action{Cut: cut, OnCut: w.kill}
	})
	w.cast.ways[schedulerRole] = proxy.Addr()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scheduler = w.cast.enter(schedulerRole, 0)
	return w
}

// counts reports whether a command is the kth by which a loop writes.
func (w *loopWalk) counts(c redistest.Command, k int) bool {
	if !c.IsScript() {
		return false
	}
	name := c.Args[0][strings.LastIndex(c.Args[0], "_")+1:]
	if name != "adapt" && name != "pressure" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if name == "adapt" { // name, number of keys, key, now, gate, limit
		gate := store.GateName(c.Args[4])
		limit, err := strconv.Atoi(c.Args[5])
		if err != nil {
			w.Errorf("%q asks for a limit: %v", c.Args[:6], err)
		}
		w.mu.asked[gate] = append(w.mu.asked[gate], limit)
	}
	w.mu.writes++
	return w.mu.writes == k
}

func (w *loopWalk) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.scheduler.command.Process.Kill(); err != nil {
		w.Error(err)
	}
	close(w.dead)
}

// walk has limits fall to their least, and reports whether the first scheduler died over it.
func (w *loopWalk) walk() (died bool) {
	for deadline := time.Now().Add(pointPatience); ; w.pause(30 * time.Millisecond) {
		select {
		case <-w.dead:
			if !died {
				died = true
				w.cast.kill(w.scheduler)
				w.look()
				w.cast.start(w.scheduler)
			}
		default:
		}
		limits := w.look()
		if w.Failed() {
			return true
		}
		if slices.IndexFunc(limits, func(l string) bool { return !strings.HasSuffix(l, " 850") }) < 0 {
			break
		}
		if time.Now().After(deadline) {
			w.Fatalf("waited in vain for the least: %v", limits)
		}
	}
	if c := w.census(); !c.Conserved() || c.Live != loopJobs {
		w.Errorf("law L4: %+v", c)
	}
	return died
}

// settled returns the limits of a partition and what admission goes by, of one moment: one that is on its way may come between two looks.
func (w *loopWalk) settled(part store.Partition) (limits []store.Adaptation, scales map[string]string) {
	w.Helper()
	read := func() map[string]string {
		scales, err := w.client.HGetAll(w.Context(), redisstore.KeysOf(part).Base()+"scales").Result()
		w.check(err)
		return scales
	}
	for scales = read(); ; {
		limits, err := part.Adaptations(w.Context())
		w.check(err)
		after := read()
		if maps.Equal(scales, after) {
			return limits, scales
		}
		scales = after
	}
}

// look asserts that each partition has a whole limit, and returns those.
func (w *loopWalk) look() (limits []string) {
	w.Helper()
	for i, part := range w.store.Partitions() {
		all, scales := w.settled(part)
		w.mu.Lock() // What was seen was asked for before.
		asked := w.mu.asked
		for _, gate := range loopGates {
			of := slices.IndexFunc(all, func(a store.Adaptation) bool { return a.Gate == gate })
			if of < 0 {
				w.Fatalf("partition %d does not know %s", i, gate)
			}
			a := &all[of]
			if a.Limit < loopLeast[gate] || a.Limit > store.PartWhole || a.Limit != store.PartWhole && !slices.Contains(asked[gate], a.Limit) {
				w.Errorf("partition %d has %s at %d, asked for were %v", i, gate, a.Limit, asked[gate])
			}
			part, _, _ := strings.Cut(scales[string(gate)], "|")
			if want := strconv.FormatFloat(float64(a.Limit)/store.PartWhole, 'g', 6, 64); part != want && (part != "" || a.Limit != store.PartWhole) {
				w.Errorf("partition %d has %s at %d, and admission goes by %q", i, gate, a.Limit, part)
			}
			limits = append(limits, fmt.Sprintf("%s in %d at %d", gate, i, a.Limit))
		}
		w.mu.Unlock()
	}
	return limits
}
