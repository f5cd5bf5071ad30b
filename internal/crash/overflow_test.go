package crash_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	overflowJobs      = 20
	overflowBytes     = 8000
	overflowSpilled   = 60
	overflowProducers = 16
	overflowEach      = 120
	// overflowDelay is the delay of every fifth job of the tenant that may spill.
	overflowDelay = 20 * time.Millisecond
)

// TestOverflowHoldsItsBound asserts L9 and the bound of a tenant's depth under each policy, at its bound all the time,
// with many producers and a worker: at every moment that is looked at, the jobs that count are at most the bound, by
// number and bytes, and as many as Redis believes; another tenant of the queue loses nothing; what is spilled comes back
// in order and once.
func TestOverflowHoldsItsBound(t *testing.T) {
	t.Parallel()
	for _, policy := range []store.OverflowPolicy{store.Reject, store.DropOldest, store.Spillover} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			o := newOverflow(t, policy)
			o.run()
			o.account()
		})
	}
}

type overflow struct {
	*desk
	policy                             store.OverflowPolicy
	admitted, refused, spilled, others atomic.Int64
	dropped, spilledLate               atomic.Int64
	looks                              int
	most                               int
	// order is what the worker got of the bounded tenant, by arrival; the worker alone writes it.
	order []uint64
	done  map[string]bool
}

func newOverflow(t *testing.T, policy store.OverflowPolicy) *overflow {
	t.Helper()
	o := &overflow{desk: newDesk(t, redistest.Start(t, redistest.Options{})), policy: policy, done: map[string]bool{}}
	o.check(o.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Hour,
		Overflows: []store.TenantOverflow{{Tenant: "acme", Queue: "mail", Overflow: store.Overflow{
			Policy: policy, MaxJobs: overflowJobs, MaxBytes: overflowBytes, MaxSpilled: overflowSpilled, LowWater: 80,
		}}},
	}))
	return o
}

// run lets all produce while one works and one watches.
func (o *overflow) run() {
	o.register("w", 8, time.Hour)
	over := make(chan struct{})
	var producing, around sync.WaitGroup
	around.Go(func() { o.work(over) })
	around.Go(func() { o.watch(over) })
	for n := range overflowProducers {
		producing.Go(func() { o.produce("acme", n) })
	}
	producing.Go(func() { o.produce("other", overflowProducers) })
	producing.Wait()
	close(over)
	around.Wait()
	o.drain("w", o.finishOf)
}

func (o *overflow) produce(tenant string, n int) {
	for i := range overflowEach {
		j := admission.NewJob(tenant, "mail", "work", make([]byte, (n*7+i*131)%700))
		j.ID = fmt.Sprintf("%d-%d", n, i)
		if o.policy != store.Spillover { // What is spilled has one order if all are of one class.
			j.Priority = admission.DefaultClasses()[(n+i)%3].Name
		}
		if o.delayed(j.Tenant, i) {
			j.Delay = overflowDelay
		}
		verdicts, err := o.store.Partitions()[0].Admit(o.Context(), 1, []store.Candidate{candidate(j)})
		if err != nil {
			o.Error(err)
			return
		}
		v := verdicts[0]
		o.dropped.Add(int64(v.Dropped))
		switch {
		case v.Decision == admission.Refused && v.Reason == admission.ReasonOverflow && tenant == "acme":
			o.refused.Add(1)
		case v.Decision != admission.Admitted:
			o.Errorf("job of %s: %+v", tenant, v)
		case tenant == "other":
			o.others.Add(1)
		case v.Place == admission.PlaceSpilled:
			o.spilled.Add(1)
			if o.delayed(tenant, i) {
				o.spilledLate.Add(1)
			}
			fallthrough
		default:
			o.admitted.Add(1)
		}
	}
}

// work completes what it gets; where order does not matter, some jobs come back first.
func (o *overflow) work(over <-chan struct{}) {
	for !closed(over) {
		leases, err := o.store.Partitions()[0].Read(o.Context(), "w", o.pool.ID(), 4, 5*time.Millisecond, false)
		if err != nil {
			o.Error(err)
			return
		}
		ends := make([]store.Finish, len(leases))
		for i, l := range leases {
			ends[i] = o.finishOf(l)
		}
		if len(ends) > 0 {
			if _, _, err = o.store.Partitions()[0].Finish(o.Context(), o.pool.ID(), "w", ends); err != nil {
				o.Error(err)
				return
			}
		}
		if _, err = o.store.Partitions()[0].Promote(o.Context(), "w", time.Second); err != nil {
			o.Error(err)
			return
		}
	}
}

func (o *overflow) finishOf(l store.Lease) store.Finish {
	f := complete(l)
	key := f.Key.String()
	if o.policy != store.Spillover && l.Attempts == 0 && l.Seq%9 == 0 {
		f.Outcome, f.Delay = store.Retry, time.Millisecond
		return f
	}
	if o.done[key] {
		o.Errorf("job %s runs twice", key)
	}
	o.done[key] = true
	_, number, _ := strings.Cut(l.Job.ID, "-")
	i, err := strconv.Atoi(number)
	if err != nil {
		o.Error(err)
	}
	switch delayed := o.delayed(l.Job.Tenant, i); {
	case delayed && time.Since(l.Arrival) < overflowDelay:
		o.Errorf("job %s runs %s after its arrival", key, time.Since(l.Arrival))
	case !delayed && l.Job.Tenant == "acme":
		o.order = append(o.order, l.Seq)
	}
	return f
}

// delayed says of the ith job of a producer whether it starts later than it enters.
func (o *overflow) delayed(tenant string, i int) bool {
	return o.policy == store.Spillover && tenant == "acme" && i%5 == 4
}

// watch looks again and again at everything of one moment.
func (o *overflow) watch(over <-chan struct{}) {
	for !closed(over) {
		o.look()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// look counts the bounded tenant's jobs by their records, dead letters and spilled ones apart, and compares.
func (o *overflow) look() {
	const counted = 8 // A flag of the record, see lua/scripts/fragments/record.lua.
	pipe := o.client.TxPipeline()
	jobs := pipe.HGetAll(o.Context(), redisstore.Keys(o.store).Jobs())
	dead := pipe.ZRange(o.Context(), redisstore.Keys(o.store).Dead(), 0, -1)
	spilled := pipe.ZRange(o.Context(), redisstore.Keys(o.store).Base()+"spill:acme:mail", 0, -1)
	depth := pipe.HGet(o.Context(), redisstore.Keys(o.store).Base()+"depth", "acme:mail")
	_, _ = pipe.Exec(o.Context()) // Nil where nothing counts.
	apart := map[string]bool{}
	for _, key := range append(dead.Val(), spilled.Val()...) {
		apart[key] = true
	}
	n, bytes := 0, 0
	for key, record := range jobs.Val() {
		if !strings.HasPrefix(key, "acme:") {
			continue
		}
		if is := record[1]&counted != 0; is == apart[key] {
			o.Errorf("job %s: counted %t, dead or spilled %t", key, is, apart[key])
		}
		if !apart[key] {
			n, bytes = n+1, bytes+len(record)
		}
	}
	believed := "0|0"
	if depth.Val() != "" {
		believed = depth.Val()
	}
	if is := strconv.Itoa(n) + "|" + strconv.Itoa(bytes); is != believed && is != believed+"|0" {
		o.Errorf("%s jobs and bytes count, and Redis believes in %s", is, believed)
	}
	if n > overflowJobs || bytes > overflowBytes || len(spilled.Val()) > overflowSpilled {
		o.Errorf("%d jobs, %d bytes, %d spilled: above the bound", n, bytes, len(spilled.Val()))
	}
	o.looks, o.most = o.looks+1, max(o.most, n)
}

// account compares the sums.
func (o *overflow) account() {
	o.look()
	c := o.census()
	o.Logf("%d admitted, %d of them spilled, %d refused, %d dropped, most at a time %d in %d looks; of the other tenant %d admitted",
		o.admitted.Load(), o.spilled.Load(), o.refused.Load(), o.dropped.Load(), o.most, o.looks, o.others.Load())
	if o.others.Load() != overflowEach {
		o.Errorf("%d jobs of the other tenant entered, want all %d", o.others.Load(), overflowEach)
	}
	all := o.admitted.Load() + o.others.Load()
	if c.Accepted != all || c.Died["dropped"] != o.dropped.Load() || c.Left["completed"]+c.Dead != all || c.Dead != o.dropped.Load() ||
		int64(len(o.done)) != c.Left["completed"] {
		o.Errorf("law L9: %d admitted, %d dropped, %d done; Redis has %+v", all, o.dropped.Load(), len(o.done), c)
	}
	letters, err := o.client.ZRange(o.Context(), redisstore.Keys(o.store).Dead(), 0, -1).Result()
	o.check(err)
	for _, key := range letters {
		if !strings.HasPrefix(key, "acme:") {
			o.Errorf("job %s of another tenant was dropped", key)
		}
	}
	used := map[store.OverflowPolicy]int64{store.Reject: o.refused.Load(), store.DropOldest: o.dropped.Load(), store.Spillover: o.spilled.Load()}
	if used[o.policy] == 0 || o.policy == store.Spillover && o.spilledLate.Load() == 0 {
		o.Errorf("the bound was never reached, or by no job with a time of its own")
	}
	for i := 1; o.policy == store.Spillover && i < len(o.order); i++ {
		if o.order[i] <= o.order[i-1] {
			o.Errorf("job %d of the tenant runs after job %d", o.order[i], o.order[i-1])
			break
		}
	}
}
