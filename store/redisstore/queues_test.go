package redisstore

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// Bounds of names in these tests, for a tenant and for all.
const (
	fewMade   = 4
	fewQueues = 10
)

// nameYard is a yard of few names.
type nameYard struct {
	*yard

	version int64
	// last is the id of the last job offered into a queue.
	last  map[string]string
	count int
}

func newNameYard(t *testing.T) *nameYard {
	t.Helper()
	y := newYard(t)
	y.store.conn.Scripts = maps.Clone(lua.Scripts("", lua.SingleLayout))
	lower(t, y.store.conn.Scripts, "QUEUE_CAP, MADE_CAP, LOOKS = %d, 256, 64\n", store.MaxQueues, fewQueues)
	lower(t, y.store.conn.Scripts, fmt.Sprintf("QUEUE_CAP, MADE_CAP, LOOKS = %d, ", fewQueues)+"%d, 64\n", 256, fewMade)
	return &nameYard{yard: y, last: map[string]string{}}
}

// offer enqueues a job of a tenant into a queue of that name.
func (y *nameYard) offer(tenant, queue string, delay time.Duration) admission.Verdict {
	y.tb.Helper()
	y.count++
	y.last[queue] = fmt.Sprint("job-", y.count)
	j := mail(tenant, y.last[queue])
	j.Queue, j.Delay = queue, delay
	verdicts, err := y.store.Admit(y.tb.Context(), y.version, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	check(y.tb, err)
	return verdicts[0]
}

func (y *nameYard) cancel(tenant, queue string) {
	y.tb.Helper()
	_, _, err := y.store.Cancel(y.tb.Context(), admission.Key{Tenant: tenant, ID: y.last[queue]}, store.Intervention{})
	check(y.tb, err)
}

// names returns how many queues the state has, which is what it counts.
func (y *nameYard) names() (n int) {
	y.tb.Helper()
	state, err := y.client.HGetAll(y.tb.Context(), y.store.conn.Partition.State()).Result()
	check(y.tb, err)
	for field := range state {
		if strings.HasPrefix(field, "q:") {
			n++
		}
	}
	if counted := number(y.tb, cmp.Or(state["nq"], "0")); counted != n {
		y.tb.Errorf("%d queues are counted, there are %d", counted, n)
	}
	return n
}

// policy names a queue in the policy.
func (y *nameYard) policy(queue string) {
	y.tb.Helper()
	check(y.tb, y.store.PutPolicy(y.tb.Context(), store.PolicyUpdate{
		Expected: y.version, Version: y.version + 1, Text: []byte("{}"), Window: time.Minute,
		Queues: []store.QueueSettings{{Queue: queue, Classes: admission.DefaultClasses(), Horizon: time.Hour}},
	}))
	y.version++
}

// TestNamesOfQueuesAreBounded: a tenant makes as many queues as it may, and all together as many as the store keeps. What the policy
// names or a worker serves is never refused.
func TestNamesOfQueuesAreBounded(t *testing.T) {
	t.Parallel()
	y := newNameYard(t)
	refused := func(tenant, queue, text string) {
		t.Helper()
		v := y.offer(tenant, queue, 0)
		if v.Reason != admission.ReasonQueues || v.RetryAfter != time.Second || v.Err().Error() != "job refused: "+text+", and this one would be new" {
			t.Errorf("%s, queue %s: %v", tenant, queue, v.Err())
		}
	}
	for i := range fewMade {
		check(t, y.offer("evil", fmt.Sprint("a", i), time.Duration(i%2)*time.Hour).Err())
	}
	refused("evil", "more", "its tenant has made 4 queues that the policy does not name and no worker serves")
	check(t, y.offer("acme", "a0", 0).Err())
	for _, tenant := range []string{"acme", "other"} {
		for i := range (fewQueues - fewMade) / 2 {
			check(t, y.offer(tenant, fmt.Sprint(tenant, i), 0).Err())
		}
	}
	if n := y.names(); n != fewQueues {
		t.Errorf("%d queues", n)
	}
	refused("acme", "more", "there are as many queues as the store keeps")
	y.policy("named")
	check(t, y.offer("evil", "named", 0).Err())
	_, err := y.store.Register(t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "served", Weight: 1}}}, 1, time.Minute)
	check(t, err)
	check(t, y.offer("evil", "served", 0).Err())
}

// TestQueuesThatHoldNothingAreForgotten: nothing but what they hold is left of names that a tenant makes up, and it is conserved.
func TestQueuesThatHoldNothingAreForgotten(t *testing.T) {
	t.Parallel()
	y := newNameYard(t)
	admitted, refusals := 0, 0
	for i := range 20 * fewQueues {
		queue := fmt.Sprint("q", i)
		v := y.offer(fmt.Sprint("evil", i%3), queue, 0)
		for v.Decision == admission.Refused && refusals < i { // What a refusal finds is there for the next.
			refusals++
			v = y.offer(fmt.Sprint("evil", i%3), queue, 0)
		}
		check(t, v.Err())
		admitted++
		y.cancel(fmt.Sprint("evil", i%3), queue)
	}
	if n := y.names(); n > fewQueues || refusals > 0 {
		t.Errorf("%d queues, %d refusals although none holds anything", n, refusals)
	}
	census, err := y.store.Census(t.Context())
	check(t, err)
	if !census.Conserved() || census.Accepted != int64(admitted) || census.Left["cancelled"] != census.Accepted {
		t.Errorf("%+v", census)
	}
}

// TestQueuesThatHoldSomethingAreKept: whatever keeps a queue from being forgotten, once it is gone the queue goes.
func TestQueuesThatHoldSomethingAreKept(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]struct{ begin, end func(y *nameYard) }{
		"nothing":       {},
		"a waiting job": {func(y *nameYard) { check(y.tb, y.offer("evil", "held", 0).Err()) }, func(y *nameYard) { y.cancel("evil", "held") }},
		"a delayed job": {func(y *nameYard) { check(y.tb, y.offer("evil", "held", time.Minute).Err()) }, func(y *nameYard) { y.promoteAfter(2 * time.Minute); y.cancel("evil", "held") }},
		"a dead letter": {func(y *nameYard) { y.bury("evil", "held", "dead"); y.leave("held") }, func(y *nameYard) { y.purge("evil", "dead") }},
		"a pause":       {func(y *nameYard) { y.gate("held", 0) }, func(y *nameYard) { y.gate("held", store.Unlimited) }},
		"a suspension": {func(y *nameYard) {
			check(y.tb, y.store.Suspend(y.tb.Context(), store.QueueGate("held"), 0, store.Intervention{}))
		}, func(y *nameYard) { y.resume("held") }},
		"a worker":       {func(y *nameYard) { y.bury("evil", "held", "dead"); y.purge("evil", "dead") }, func(y *nameYard) { y.leave("held") }},
		"a named policy": {func(y *nameYard) { y.policy("held") }, func(y *nameYard) { y.policy("other") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newNameYard(t)
			check(t, y.offer("evil", "held", 0).Err())
			y.cancel("evil", "held")
			if hold.begin != nil {
				hold.begin(y)
				y.crowd("first")
				if _, err := y.store.Queue(t.Context(), "held"); err != nil {
					t.Errorf("while it has it: %v", err)
				}
				hold.end(y)
			}
			y.crowd("then")
			if known := y.client.HExists(t.Context(), y.store.conn.Partition.State(), "q:held").Val(); known {
				t.Error("it is not forgotten")
			}
			y.names()
			if made := y.client.HGetAll(t.Context(), y.store.conn.Partition.Base()+"made").Val(); made["held"] != "" {
				t.Errorf("it is counted as made: %v", made)
			}
		})
	}
}

func (y *nameYard) promoteAfter(d time.Duration) {
	y.store.conn.Now = strconv.FormatInt(time.Now().Add(d).UnixMicro(), 10)
	y.promoteAll()
}

// leave ends the worker that served a queue.
func (y *nameYard) leave(queue string) {
	y.tb.Helper()
	_, err := y.store.Reclaim(y.tb.Context(), "of "+queue)
	check(y.tb, err)
}

func (y *nameYard) purge(tenant, id string) {
	y.tb.Helper()
	_, err := y.store.Purge(y.tb.Context(), []admission.Key{{Tenant: tenant, ID: id}}, store.Intervention{})
	check(y.tb, err)
}

func (y *nameYard) resume(queue string) {
	y.tb.Helper()
	_, err := y.store.Resume(y.tb.Context(), store.QueueGate(queue), store.Intervention{})
	check(y.tb, err)
}

func (y *nameYard) gate(queue string, limit int) {
	y.tb.Helper()
	_, _, err := y.store.SetGate(y.tb.Context(), store.Gate{Name: store.QueueGate(queue), Limit: limit})
	check(y.tb, err)
}

// crowd makes and leaves names of queues until those that hold nothing have been looked at.
func (y *nameYard) crowd(prefix string) {
	y.tb.Helper()
	for i := range 2 * fewQueues {
		queue := fmt.Sprint(prefix, i)
		check(y.tb, y.offer("crowd", queue, 0).Err())
		y.cancel("crowd", queue)
	}
}
