package crash_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	exitSteps = 600
	// exitAge, exitWait and exitLease are over while the test runs.
	exitAge, exitWait, exitLease = 150 * time.Millisecond, 40 * time.Millisecond, 30 * time.Millisecond
)

// exitQueues are queues out of which jobs go in ways of their own.
func exitQueues() []store.QueueSettings {
	queues := []store.QueueSettings{
		{Queue: "plain"},
		{Queue: "drop", DropExpired: true},
		{Queue: "wait", MaxWait: exitWait},
		{Queue: "waitdrop", MaxWait: exitWait, DropExpired: true},
		{Queue: "age", KeepDead: exitAge},
		{Queue: "count", MaxDead: 3},
		{Queue: "bound", Overflow: store.Overflow{Policy: store.DropOldest, MaxJobs: 2}},
		{Queue: "poison", PoisonLimit: 1},
	}
	for i := range queues {
		queues[i].Classes, queues[i].Horizon = admission.DefaultClasses(), time.Hour
	}
	return queues
}

// TestEveryWayOutIsCounted asserts L9: through random histories that use every way out, each job that entered has left
// through the way that the test has seen, a dead letter has its reason, whatever has no record has a counter, and the
// sum over all ways is what entered.
func TestEveryWayOutIsCounted(t *testing.T) {
	t.Parallel()
	x := &exits{desk: newDesk(t, redistest.Shared(t)), dice: newDice(t), told: map[string]string{}, queue: map[string]string{}}
	var pool store.Pool
	for _, q := range exitQueues() {
		pool.Queues = append(pool.Queues, store.QueueWeight{Queue: q.Queue, Weight: 1})
	}
	x.pool = pool
	putPolicy(t, x.store, stormPolicy(), exitQueues()...)
	x.register("main", 4, time.Hour)
	steps := []func(){x.enter, x.enter, x.enter, x.work, x.work, x.work, x.hold, x.cancel, x.cancel, x.lose, x.purge, x.wait, x.wait}
	for range exitSteps {
		steps[x.dice.IntN(len(steps))]()
	}
	x.crowd()
	x.endHeld()
	x.outnumber()
	x.outstay()
	x.convict()
	x.drain("main", complete2(x))
	for deadline := time.Now().Add(time.Minute); ; x.pause(x.promote()) {
		if n, err := x.client.ZCard(t.Context(), redisstore.Keys(x.store).Dead()+":age").Result(); err == nil && n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("dead letters outstay their time")
		}
	}
	x.account()
}

// exits is a random history, and what its author was told.
type exits struct {
	*desk
	dice *rand.Rand
	// told is how each job left, by key, as far as somebody was told; queue is where each job is.
	told, queue map[string]string
	keys        []admission.Key
	held        []store.Lease
	// dropped counts the jobs that had to go for others, purged the dead letters purged by hand.
	dropped, purged int64
	losers          int
	// convicted were begun by lost workers as often as their queue's poison limit says.
	convicted int64
}

// enter asks for some jobs of a queue.
func (x *exits) enter() {
	queue := exitQueues()[x.dice.IntN(len(x.pool.Queues))].Queue
	var jobs []store.Candidate
	for range 1 + x.dice.IntN(6) {
		j := admission.NewJob(fmt.Sprintf("t%d", x.dice.IntN(3)), queue, "work", nil)
		j.ID = fmt.Sprintf("j%d", len(x.keys)+len(jobs))
		j.MaxAttempts = 1 + x.dice.IntN(2)
		switch x.dice.IntN(5) {
		case 0:
			j.Deadline = time.Now().Add(time.Duration(20+x.dice.IntN(40)) * time.Millisecond)
		case 1:
			j.Delay = time.Duration(1+x.dice.IntN(50)) * time.Millisecond
		}
		jobs = append(jobs, candidate(j))
	}
	x.ask(queue, jobs)
}

// ask admits jobs and notes the answers.
func (x *exits) ask(queue string, jobs []store.Candidate) {
	x.Helper()
	for i, v := range x.admit(1, jobs...) {
		key := admission.Key{Tenant: jobs[i].Job.Tenant, ID: jobs[i].Job.ID}
		x.keys = append(x.keys, key)
		x.dropped += int64(v.Dropped)
		if v.Decision == admission.Admitted {
			x.queue[key.String()] = queue
		} else if v.Reason == "" {
			x.Errorf("job %s was refused without a reason", key)
		}
	}
}

// crowd makes sure that a job is dropped, however the dice fell: of three that wait in a queue with a bound of two.
func (x *exits) crowd() {
	gate := store.Gate{Name: store.QueueGate("bound"), By: store.Intervention{Reason: x.Name()}}
	_, _, err := x.store.SetGate(x.Context(), gate)
	x.check(err)
	for range 3 {
		j := admission.NewJob("crowd", "bound", "work", nil)
		j.ID = fmt.Sprintf("j%d", len(x.keys))
		x.ask("bound", []store.Candidate{candidate(j)})
	}
	gate.Limit = store.Unlimited
	_, _, err = x.store.SetGate(x.Context(), gate)
	x.check(err)
}

// outnumber makes sure that dead letters go in each of three ways, however the dice fell: of five in a queue with a bound of three for
// younger ones, two of them by hand, and one that is kept for a while by age.
func (x *exits) outnumber() {
	for range 5 {
		x.kill("count")
	}
	x.purge()
	x.kill("age")
}

// kill makes a dead letter of a queue.
func (x *exits) kill(queue string) {
	j := admission.NewJob("many", queue, "work", nil)
	j.ID = fmt.Sprintf("j%d", len(x.keys))
	x.ask(queue, []store.Candidate{candidate(j)})
	x.awaitExit("a job of "+queue, func() bool {
		x.note(x.read("main", 4), func(l store.Lease) store.Finish {
			if l.Job.ID != j.ID {
				return x.anyEnd(l)
			}
			f := endAs(l, store.Kill)
			f.Reason = "discarded"
			return f
		})
		return x.told[admission.Key{Tenant: j.Tenant, ID: j.ID}.String()] != ""
	})
}

// outstay makes sure that a job expires in each of four ways, however the dice fell and however slow the machine is: behind shut gates.
func (x *exits) outstay() {
	queues := []string{"plain", "drop", "wait", "waitdrop"}
	gates := func(limit int) {
		for _, queue := range queues {
			_, _, err := x.store.SetGate(x.Context(), store.Gate{Name: store.QueueGate(queue), Limit: limit, By: store.Intervention{Reason: x.Name()}})
			x.check(err)
		}
	}
	gates(0)
	for _, queue := range queues {
		j := admission.NewJob("late", queue, "work", nil)
		j.ID = fmt.Sprintf("j%d", len(x.keys))
		if queue == "plain" || queue == "drop" {
			j.Deadline = redistest.Now().Add(time.Second)
		}
		before := x.census()
		x.ask(queue, []store.Candidate{candidate(j)})
		x.awaitExit("a job that waits in "+queue, func() bool {
			c := x.census()
			switch queue {
			case "plain":
				return c.Died["expired"] > before.Died["expired"]
			case "drop":
				return c.Left["expired"] > before.Left["expired"]
			case "wait":
				return c.Died["queue_timeout"] > before.Died["queue_timeout"]
			}
			return c.Left["queue_timeout"] > before.Left["queue_timeout"]
		})
	}
	gates(store.Unlimited)
}

// awaitExit waits until a job has left.
func (x *exits) awaitExit(what string, left func() bool) {
	x.Helper()
	for deadline := time.Now().Add(time.Minute); !left(); x.pause(x.promote()) {
		if time.Now().After(deadline) {
			x.Fatalf("%s is still there", what)
		}
	}
}

// work ends what the worker can get, each in some way.
func (x *exits) work() { x.end(x.read("main", 1+x.dice.IntN(4))) }

// hold takes jobs, to be ended later: some are cancelled meanwhile.
func (x *exits) hold() {
	x.endHeld()
	x.held = x.read("main", 2)
}

func (x *exits) endHeld() {
	x.end(x.held)
	x.held = nil
}

func (x *exits) end(leases []store.Lease) { x.note(leases, x.anyEnd) }

func (x *exits) anyEnd(l store.Lease) store.Finish {
	f := endAs(l, everyOutcome[x.dice.IntN(len(everyOutcome))])
	switch f.Outcome {
	case store.Kill:
		f.Reason = []string{"discarded", "bad_payload"}[x.dice.IntN(2)]
	case store.Retry:
		f.Delay = time.Duration(x.dice.IntN(20)) * time.Millisecond
	case store.Expire:
		if l.Job.Deadline.IsZero() || time.Now().Before(l.Job.Deadline) {
			f.Outcome = store.Complete
		}
	case store.Complete, store.Release:
	}
	return f
}

// note ends jobs and keeps what is answered.
func (x *exits) note(leases []store.Lease, end func(store.Lease) store.Finish) {
	for _, l := range leases {
		f := end(l)
		x.tell(f, x.finish([]store.Lease{l}, func(store.Lease) store.Finish { return f })[0])
	}
}

func (x *exits) tell(f store.Finish, ended store.Ended) {
	key := f.Key.String()
	if x.told[key] != "" && x.told[key] != "cancelling" {
		x.Errorf("job %s left as %s, and comes back", key, x.told[key])
	}
	switch ended {
	case store.EndedDone:
		x.told[key] = "completed"
	case store.EndedCancelled:
		x.told[key] = "cancelled"
	case store.EndedDead:
		x.told[key] = f.Reason
		if f.Outcome == store.Retry {
			x.told[key] = "max_attempts"
		}
	case store.EndedExpired, store.EndedRetried, store.EndedReleased:
	case store.EndedLost:
		x.Errorf("job %s was lost to a worker that was there", key)
	}
}

// complete2 completes jobs and keeps that.
func complete2(x *exits) func(store.Lease) store.Finish {
	return func(l store.Lease) store.Finish {
		f := complete(l)
		x.tell(f, store.EndedDone)
		return f
	}
}

// cancel cancels any job, wherever it is.
func (x *exits) cancel() {
	if len(x.keys) == 0 {
		return
	}
	key := x.keys[max(0, len(x.keys)-1-x.dice.IntN(30))]
	if len(x.held) > 0 && x.dice.IntN(3) == 0 {
		key = endAs(x.held[0], "").Key
	}
	running, _, err := x.store.Cancel(x.Context(), key, store.Intervention{Reason: "as drawn"})
	switch {
	case err == nil && running:
		x.told[key.String()] = "cancelling"
	case err == nil:
		x.told[key.String()] = "cancelled"
	}
}

// convict makes sure that a job is found to be poison, however the dice fell.
func (x *exits) convict() {
	j := admission.NewJob("convict", "poison", "work", nil)
	j.ID = "killer"
	x.ask("poison", []store.Candidate{candidate(j)})
	for deadline := time.Now().Add(time.Minute); x.convicted == 0; x.lose() {
		if time.Now().After(deadline) {
			x.Fatal("no suspect comes back")
		}
	}
}

// lose gives jobs to a worker that is never heard of again. Suspects that it begins are noted first.
func (x *exits) lose() {
	name := fmt.Sprintf("loser%d", x.losers)
	x.losers++
	x.register(name, 3, exitLease)
	for _, l := range x.read(name, 3) {
		if l.Suspect && x.dice.IntN(2) == 0 {
			key := endAs(l, "").Key
			err := x.store.Partitions()[0].Started(x.Context(), x.pool.ID(), name, l.Token, key)
			if errors.Is(err, store.ErrBeside) {
				continue
			}
			x.check(err)
			if x.client.HExists(x.Context(), redisstore.Keys(x.store).Suspects(), key.String()).Val() {
				continue // It is of a group: nothing counts against it.
			}
			limit := store.DefaultPoisonLimit
			if l.Job.Queue == "poison" {
				limit = 1
			}
			if l.Lost+1 >= limit {
				x.convicted++
			}
		}
	}
	x.pause(exitLease + time.Millisecond)
	for x.client.HExists(x.Context(), redisstore.Keys(x.store).Workers(), name).Val() {
		x.pause(x.promote())
	}
}

func (x *exits) purge() {
	letters, err := x.client.ZRangeArgs(x.Context(), redis.ZRangeArgs{Key: redisstore.Keys(x.store).Dead(), Start: 0, Stop: 1, Rev: true}).Result()
	x.check(err)
	for _, letter := range letters {
		tenant, id, _ := strings.Cut(letter, ":")
		purged, err := x.store.Purge(x.Context(), []admission.Key{{Tenant: tenant, ID: id}}, store.Intervention{})
		x.check(err)
		if purged[0] {
			x.purged++
		}
	}
}

func (x *exits) wait() { x.pause(x.promote() + time.Duration(x.dice.IntN(10))*time.Millisecond) }

// account compares what the test was told with what Redis counts.
func (x *exits) account() {
	c := x.census()
	told := map[string]int64{}
	for _, way := range x.told {
		told[way]++
	}
	deaths := int64(0)
	for _, n := range c.Died {
		deaths += n
	}
	x.Logf("accepted %d, left %v, died %v, dead %d; purged by hand %d", c.Accepted, c.Left, c.Died, c.Dead, x.purged)
	equal := func(what string, counted, seen int64) {
		if counted != seen {
			x.Errorf("law L9: Redis counts %d %s, %d were seen", counted, what, seen)
		}
		if counted == 0 {
			x.Errorf("no job left as %s: the history does not use that way", what)
		}
	}
	equal("accepted", c.Accepted, int64(len(x.queue)))
	equal("completed", c.Left["completed"], told["completed"])
	equal("cancelled", c.Left["cancelled"], told["cancelled"]+told["cancelling"])
	for _, reason := range []string{"discarded", "bad_payload", "max_attempts"} {
		equal(reason, c.Died[reason], told[reason])
	}
	equal("dropped", c.Died["dropped"], x.dropped)
	equal("poison", c.Died["poison"], x.convicted)
	equal("purged or evicted", c.Left["purged"]+c.Left["evicted"], deaths-c.Dead)
	if by := c.Left["purged"] - x.purged; by <= 0 || x.purged == 0 || c.Left["evicted"] == 0 {
		x.Errorf("%d were purged by hand, %d by age, and %d evicted: the history does not use all three", x.purged, by, c.Left["evicted"])
	}
	late := c.Died["expired"] + c.Died["queue_timeout"] + c.Left["expired"] + c.Left["queue_timeout"]
	rest := c.Accepted - told["completed"] - told["cancelled"] - told["cancelling"] - (deaths - c.Died["expired"] - c.Died["queue_timeout"])
	equal("expired in all", late, rest)
	for _, n := range []int64{c.Died["expired"], c.Died["queue_timeout"], c.Left["expired"], c.Left["queue_timeout"]} {
		if n == 0 {
			x.Error("a job expires in four ways, and the history does not use them all")
		}
	}
	why, err := x.client.HGetAll(x.Context(), redisstore.Keys(x.store).Why()).Result()
	x.check(err)
	letters, err := x.client.ZRange(x.Context(), redisstore.Keys(x.store).Dead(), 0, -1).Result()
	x.check(err)
	if slices.Sort(letters); !slices.Equal(letters, slices.Sorted(maps.Keys(why))) {
		x.Errorf("law L9: %d dead letters, %d reasons", len(letters), len(why))
	}
	for key, reason := range why {
		if told := x.told[key]; reason[0] == '|' || told != "" && !strings.HasPrefix(reason, told+"|") {
			x.Errorf("law L9: dead letter %s has the reason %q, told was %q", key, reason, told)
		}
	}
}
