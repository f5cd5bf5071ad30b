package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// quietPool serves what every pool of a walk serves, by other weights than theirs.
var quietPool = store.Pool{Queues: []store.QueueWeight{{Queue: "hook", Weight: 3}, {Queue: "mail", Weight: 1}}}

const (
	// quietTick is how far a step goes at most: less than a step of the clock, which would arm all leases anew.
	quietTick = 4900 * time.Millisecond
	// quietPatience is for how long nothing may end where no rate is slower: longer than any lease, back-off or cooldown of a walk.
	quietPatience = 5 * time.Minute
	// quietCalls is how many calls of promote a step may take.
	quietCalls = 2000
)

// assertQuiet asserts that every job that may run does: with one live worker and a scheduler nothing is left behind in the end,
// in ready streams of pools without workers, in lanes, behind gates that are open, on the shelf, in `later` or spilled. Only what
// is shut for ever is opened, so that nothing else is woken by it. What is in memory is left where it is.
func (w *walk) assertQuiet() {
	const worker = "lives"
	w.open()
	slots := pick(w, "slots of the worker that lives", []int{1, 3, 8})
	_, err := w.store.Register(w.ctx, worker, quietPool, slots, 24*time.Hour)
	check(w.tb, err)
	quiet, patience := time.Duration(0), w.patience()
	for quiet < patience {
		next, held := w.promoteAll()
		if w.work(worker, slots) > 0 {
			quiet = 0
			continue
		}
		ended, runs := w.look()
		if runs != "" && !held && next > fairqueue.ContinueAfter*time.Microsecond {
			w.rt.Fatalf("law W: a worker has %d slots free, and there is %s (%s)\n%s", slots, runs, strings.Join(w.log, " "),
				strings.Join(dumpRedis(w.ctx, w.tb, w.store), "\n"))
		}
		if ended {
			w.passWakes()
			w.assertConserved()
			w.assertEmpty()
			return
		}
		next = max(time.Millisecond, min(next, quietTick))
		quiet += next
		w.pass(next)
	}
	w.assertConserved()
	w.rt.Fatalf("jobs are left behind (%s):\n%s", strings.Join(w.log, " "), strings.Join(dumpRedis(w.ctx, w.tb, w.store), "\n"))
}

// patience is for how long nothing may end: a receiver that pushed back may have a rate of one job in seven minutes.
func (w *walk) patience() time.Duration {
	gates, err := w.memory.Gates(w.ctx)
	check(w.tb, err)
	slowest := time.Duration(0)
	for _, g := range gates {
		if g.Rate > 0 {
			slowest = max(slowest, time.Duration(float64(time.Second)/g.Rate))
		}
	}
	return quietPatience + slowest
}

// passWakes lets pass what gates that ran out of moves have timers for still, though nobody waits any more: those stand by a clock that
// may have been set back since.
func (w *walk) passWakes() {
	for passed := time.Duration(0); passed < quietPatience; passed += quietTick {
		wakes, err := redisconn.Client(w.store.Conn()).Exists(w.ctx, w.store.Conn().Partition.Base()+"wakes").Result()
		check(w.tb, err)
		if wakes == 0 {
			return
		}
		w.pass(quietTick)
		w.promoteAll()
	}
}

// pass lets time pass.
func (w *walk) pass(by time.Duration) {
	w.now += by.Microseconds()
	w.store.SetTime(time.UnixMicro(w.now))
}

// open ends pauses that nobody else would, calls of those who are no workers, and breakers that an operator holds.
func (w *walk) open() {
	gates, err := w.memory.Gates(w.ctx)
	check(w.tb, err)
	for _, g := range gates {
		if g.Paused() && g.Until.IsZero() {
			_, _, err := w.store.SetGate(w.ctx, store.Gate{Name: g.Name, Limit: store.Unlimited})
			check(w.tb, err)
		}
	}
	states, err := w.memory.Breakers(w.ctx)
	check(w.tb, err)
	for _, s := range states {
		for _, call := range walkCalls {
			_, _, err := w.store.EndProbe(w.ctx, s.Downstream, call)
			check(w.tb, err)
		}
		if s.Forced && s.Until.IsZero() {
			_, err := w.store.ResetBreaker(w.ctx, s.Downstream, store.Intervention{Reason: "test"})
			check(w.tb, err)
		}
	}
}

// promoteAll promotes until nothing more is due, and returns for how long; held means that another scheduler may.
func (w *walk) promoteAll() (next time.Duration, held bool) {
	for range quietCalls {
		p, err := w.store.Promote(w.ctx, "s1", time.Second)
		check(w.tb, err)
		if p.Held || !p.More {
			return p.Next, p.Held
		}
	}
	w.rt.Fatalf("promote has more to do after %d calls:\n%s", quietCalls, strings.Join(dumpRedis(w.ctx, w.tb, w.store), "\n"))
	return 0, false
}

// work completes all that a worker gets at once, and returns how many jobs that was.
func (w *walk) work(worker string, slots int) (done int) {
	for {
		leases, err := w.store.Read(w.ctx, worker, quietPool.ID(), slots, -1, false)
		check(w.tb, err)
		if len(leases) == 0 {
			return done
		}
		jobs := make([]store.Finish, len(leases))
		for i, l := range leases {
			jobs[i] = l.Finish(store.Complete)
		}
		ends, _, err := w.store.Finish(w.ctx, quietPool.ID(), worker, jobs)
		check(w.tb, err)
		for i, end := range ends {
			if end != store.EndedDone {
				w.rt.Fatalf("job %s of the worker that lives ended as %s", jobs[i].Key, end)
			}
		}
		done += len(jobs)
	}
}

// look reports whether dead letters are all that lives, and names a class with tenants that are runnable, in a queue without a gate, which does not
// have to leave slots to others: of those at least one job runs.
func (w *walk) look() (ended bool, runs string) {
	base := w.store.Conn().Partition.Base()
	pipe := redisconn.Client(w.store.Conn()).Pipeline()
	live, dead := pipe.HLen(w.ctx, w.store.Conn().Partition.Jobs()), pipe.ZCard(w.ctx, w.store.Conn().Partition.Dead())
	gated, runnable, kept := map[string]*redis.BoolCmd{}, map[string]*redis.IntCmd{}, map[string]*redis.SliceCmd{}
	for _, queue := range walkQueues {
		gated[queue], kept[queue] = pipe.HExists(w.ctx, base+"gates", "q:"+queue), pipe.HMGet(w.ctx, base+"gates", "o:"+queue)
		for class := range admission.DefaultClasses() {
			line := fmt.Sprintf("%d:%s", class, queue)
			runnable[line] = pipe.Exists(w.ctx, base+"act:"+line)
		}
	}
	_, err := pipe.Exec(w.ctx)
	check(w.tb, err)
	for line, exists := range runnable {
		class, queue, _ := strings.Cut(line, ":")
		if reserve, ok := kept[queue].Val()[0].(string); ok {
			spec, held, _ := strings.Cut(reserve, "|")
			_, classes, _ := strings.Cut(spec, ":")
			if held != "0" && !strings.Contains(classes, class) {
				continue
			}
		}
		if exists.Val() == 1 && !gated[queue].Val() {
			runs = "act:" + line
		}
	}
	return live.Val() == dead.Val(), runs
}

// assertEmpty asserts that nothing is kept of jobs that have ended.
func (w *walk) assertEmpty() {
	d := &redisDump{tb: w.tb, store: w.store, keys: map[string]any{}, strings: map[string]string{}}
	d.read(w.ctx)
	var left []string
	for name := range d.keys {
		kind, _, _ := strings.Cut(name, ":")
		if slices.Contains([]string{"act", "idle", "ten", "lanes", "lane", "gw", "gq", "spill", "old", "later", "shelves", "waits", "holds", "runs", "marks", "depth", "spills", "starts", "started", "suspects", "begun", "cancelled", "wakes"}, kind) {
			left = append(left, fmt.Sprint(name, " ", d.keys[name]))
		}
	}
	for name, text := range d.hash("gates") {
		if parts := strings.Split(text, "|"); !isRate(name) && parts[1] != "0" {
			left = append(left, "gate "+name+" "+text)
		}
	}
	for _, field := range []string{"nh", "nm", "nl", "nc"} {
		if text := d.state[field]; text != "" {
			left = append(left, field+" "+text)
		}
	}
	if len(left) > 0 {
		w.rt.Fatalf("no job is left, but (%s):\n%s", strings.Join(w.log, " "), strings.Join(left, "\n"))
	}
}
