package redisstore

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// offerAt enqueues one job under a version of the policy.
func (y *yard) offerAt(version int64, j admission.Job) admission.Verdict {
	y.tb.Helper()
	verdicts, err := y.store.Admit(y.tb.Context(), version, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	check(y.tb, err)
	return verdicts[0]
}

// sized returns a job of a tenant with a payload of so many bytes, in a queue of its own.
func sized(tenant string, n, bytes int) admission.Job {
	j := admission.NewJob(tenant, fmt.Sprint("x", n%7), "t", []byte(strings.Repeat("x", bytes)))
	j.ID = fmt.Sprint("j", n)
	return j
}

// TestATenantIsBoundedOverAllItsQueues: by jobs and by bytes, under whatever names of queues. What leaves makes room, and nobody else
// is refused.
func TestATenantIsBoundedOverAllItsQueues(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]store.Overflow{"jobs": {Policy: store.Reject, MaxJobs: 5}, "bytes": {Policy: store.Reject, MaxBytes: 500}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			j := sized("evil", 0, 40)
			y.admit(j) // Before there is a bound: it counts all the same.
			check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
				Version: 1, Text: []byte("{}"), Window: time.Minute,
				Overflows: []store.TenantOverflow{{Tenant: store.Every, Overflow: bound}, {Tenant: "big", Overflow: store.Overflow{}}},
			}))
			for n := 1; n < 5; n++ {
				check(t, y.offerAt(1, sized("evil", n, 60)).Err())
			}
			v := y.offerAt(1, sized("evil", 5, 60))
			if v.Reason != admission.ReasonOverflow || v.Scope != "evil" || !strings.Contains(v.Err().Error(), "its tenant has 5 jobs of ") ||
				!strings.HasSuffix(v.Err().Error(), " over all its queues, which is the bound") {
				t.Errorf("the sixth: %v", v.Err())
			}
			for n := range 20 {
				check(t, y.offerAt(1, sized("big", n, 60)).Err())
			}
			check(t, y.offerAt(1, sized("acme", 0, 60)).Err())
			_, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: "evil", ID: "j3"}, store.Intervention{})
			check(t, err)
			check(t, y.offerAt(1, sized("evil", 6, 60)).Err())
		})
	}
}

// TestEachQueueWithoutABoundHasTheDefault: so that another name evades none.
func TestEachQueueWithoutABoundHasTheDefault(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute,
		Overflows: []store.TenantOverflow{{Tenant: store.Every, Queue: store.Every, Overflow: store.Overflow{Policy: store.Reject, MaxJobs: 2}}},
		Queues: []store.QueueSettings{
			{Queue: "named", Classes: admission.DefaultClasses(), Horizon: time.Hour, Overflow: store.Overflow{Policy: store.Reject, MaxJobs: 3}},
			{Queue: "free", Classes: admission.DefaultClasses(), Horizon: time.Hour, Overflow: store.Overflow{Policy: store.NoBound}},
			{Queue: "plain", Classes: admission.DefaultClasses(), Horizon: time.Hour},
		},
	}))
	for queue, want := range map[string]int{"named": 3, "free": 10, "plain": 2, "made up": 2} {
		admitted := 0
		for n := range 10 {
			j := sized("evil", n, 0)
			j.Queue, j.ID = strings.ReplaceAll(queue, " ", "-"), queue[:2]+j.ID
			switch v := y.offerAt(1, j); {
			case v.Decision == admission.Admitted:
				admitted++
			case v.Reason != admission.ReasonOverflow:
				t.Errorf("%s: %v", queue, v.Err())
			}
		}
		if admitted != want {
			t.Errorf("%s: %d were admitted, want %d", queue, admitted, want)
		}
	}
}

// TestATenantLeavesOthersTheirShareOfTheMemory: one that fills Redis up is refused while there is room left for all others, under
// whatever names of queues.
func TestATenantLeavesOthersTheirShareOfTheMemory(t *testing.T) {
	t.Parallel()
	const maxMemory = 48 << 20
	client := redistest.Start(t, redistest.Options{}).Client(t)
	check(t, client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(maxMemory)).Err())
	s, err := openOnly(t.Context(), client, Config{})
	check(t, err)
	y := &yard{tb: t, store: s, client: client}
	now := ahead()
	fill := func(tenant string, most, bytes int) (admitted int, last admission.Verdict) {
		for n := range most {
			now += 200_000 // Redis is asked for its memory anew.
			s.conn.Now = strconv.FormatInt(now, 10)
			if last = y.offerAt(0, sized(tenant, n, bytes)); last.Decision == admission.Refused {
				return n, last
			}
		}
		return most, last
	}
	used := func() float64 {
		text, err := client.InfoMap(t.Context(), "server", "memory").Result()
		check(t, err)
		memory := text["Memory"]
		jobs := number(t, memory["used_memory"])
		if version := text["Server"]["redis_version"]; version[0] != '7' { // It counts the interpreter's, too.
			jobs -= number(t, memory["used_memory_vm_total"])
		}
		return float64(jobs) / maxMemory
	}
	_, v := fill("evil", 1000, 64<<10)
	if v.Reason != admission.ReasonMemory || v.Scope != "evil" || !strings.Contains(v.Err().Error(), "more than its share of what is left") || used() < 0.8 || used() > 0.89 {
		t.Fatalf("at %.2f of the memory: %v", used(), v.Err())
	}
	if n, v := fill("acme", 100, 1<<10); n != 100 {
		t.Errorf("of another tenant %d of 100 were admitted: %v", n, v.Err())
	}
	if n, _ := fill("evil2", 1000, 63<<10); n == 0 {
		t.Error("nobody else has room for a large job")
	}
	for i := range 5 { // As many tenants as take all they can leave the next one room.
		fill(fmt.Sprint("more", i), 1000, 31<<10)
	}
	if n, v := fill("late", 20, 100); n != 20 {
		t.Errorf("of the last %d of 20 were admitted, at %.3f of the memory: %v", n, used(), v.Err())
	}
	if used() > 0.9 {
		t.Errorf("%.3f of the memory is used", used())
	}
	census, err := s.Census(t.Context())
	check(t, err)
	if !census.Conserved() {
		t.Errorf("%+v", census)
	}
}

// TestUniqueKeysThatStayAreBounded: they outlast their jobs, so a tenant has only so many, and they count in its bound over all queues.
func TestUniqueKeysThatStayAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.store.conn.Scripts = maps.Clone(lua.Scripts("", lua.SingleLayout))
	lower(t, y.store.conn.Scripts, "UNIQUE_BYTES = %d, 300\n", 1_000_000, 5)
	now := ahead()
	offer := func(tenant string, n int, release admission.Release, hold time.Duration) admission.Verdict {
		now += 1000
		y.store.conn.Now = strconv.FormatInt(now, 10)
		j := sized(tenant, n, 0)
		j.Unique = admission.Unique{Key: fmt.Sprint("k", n), For: hold, Release: release}
		v := y.offerAt(0, j)
		if v.Decision != admission.Refused {
			_, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: tenant, ID: j.ID}, store.Intervention{})
			check(t, err)
		}
		return v
	}
	for n := range 5 {
		check(t, offer("evil", n, admission.ReleaseAtExpiry, time.Hour).Err())
	}
	v := offer("evil", 5, admission.ReleaseAtExpiry, time.Hour)
	if v.Reason != admission.ReasonOverflow || !strings.Contains(v.Err().Error(), "its tenant has 5 unique keys that stay over all its queues") {
		t.Errorf("the sixth: %v", v.Err())
	}
	check(t, offer("evil", 6, admission.ReleaseAtEnd, time.Hour).Err())
	check(t, offer("acme", 0, admission.ReleaseAtExpiry, time.Hour).Err())
	now += time.Hour.Microseconds()
	check(t, offer("evil", 7, admission.ReleaseAtExpiry, time.Hour).Err())
	if n := y.client.ZCard(t.Context(), y.store.conn.Partition.Base()+"uniques:evil").Val(); n != 1 {
		t.Errorf("%d keys are kept, of which one has not passed", n)
	}
	if left := y.client.PTTL(t.Context(), y.store.conn.Partition.Base()+"uniques:evil").Val(); left <= 0 {
		t.Errorf("the list of them stays for ever: %s", left)
	}
}

// TestNothingIsKeptOfALargeJobThatIsRefused: neither of a duplicate nor of one that a limit or a bound refuses.
func TestNothingIsKeptOfALargeJobThatIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute, Overflows: []store.TenantOverflow{{Tenant: "bounded", Overflow: store.Overflow{Policy: store.Reject, MaxJobs: 1}}},
	}))
	check(t, y.offerAt(1, sized("acme", 1, 100_000)).Err())
	check(t, y.offerAt(1, sized("bounded", 1, 10)).Err())
	before := y.held()
	again := sized("acme", 1, 200_000)
	if v := y.offerAt(1, again); v.Decision != admission.Duplicate {
		t.Errorf("a duplicate: %+v", v)
	}
	if v := y.offerAt(1, sized("bounded", 2, 200_000)); v.Reason != admission.ReasonOverflow {
		t.Errorf("beyond a bound: %+v", v)
	}
	if after := y.held(); !maps.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

// held returns every key of the store with its size.
func (y *yard) held() map[string]int64 {
	y.tb.Helper()
	sizes := map[string]int64{}
	base := y.store.conn.Partition.Base()
	all := y.client.Scan(y.tb.Context(), 0, base+"*", 1000).Iterator()
	for all.Next(y.tb.Context()) {
		n, err := y.client.MemoryUsage(y.tb.Context(), all.Val(), 0).Result()
		if !errors.Is(err, redis.Nil) {
			check(y.tb, err)
		}
		sizes[strings.TrimPrefix(all.Val(), base)] = n
	}
	check(y.tb, all.Err())
	return sizes
}

// TestLanesOfATenantAreBounded: of made-up downstreams, at once or put off. What the tenant has goes on, its neighbour is not refused,
// and once lanes are empty there is room.
func TestLanesOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	const few = 4
	y := newYard(t)
	y.store.conn.Scripts = maps.Clone(lua.Scripts("", lua.SingleLayout))
	lower(t, y.store.conn.Scripts, "local LANE_CAP = %d\n", store.MaxLanes, few)
	n := 0
	calling := func(tenant, downstream string, delay time.Duration) admission.Verdict {
		n++
		j := mail(tenant, fmt.Sprint("j", n))
		j.Downstream, j.Delay = downstream, delay
		return y.offerAt(0, j)
	}
	refused := func(v admission.Verdict) {
		t.Helper()
		if v.Reason != admission.ReasonLanes || !strings.HasPrefix(v.Err().Error(), "job refused: its tenant has 4 lanes") {
			t.Errorf("one more: %v", v.Err())
		}
	}
	wide := func() (widest float64, counted string) {
		for _, z := range y.client.ZRevRangeWithScores(t.Context(), y.store.conn.Partition.Base()+"wide", 0, 0).Val() {
			widest = z.Score
		}
		return widest, redistest.State(t, y.client, y.store.conn.Partition.State())["wl"]
	}
	for i := range few {
		check(t, calling("evil", fmt.Sprint("made-up-", i), 0).Err())
	}
	refused(calling("evil", "one-more", 0))
	if widest, counted := wide(); widest != few || counted != "1" {
		t.Errorf("the widest has %v lanes, of %s that are wide", widest, counted)
	}
	check(t, calling("evil", "made-up-1", 0).Err())
	check(t, calling("evil", "", 0).Err())
	for i := range few {
		check(t, calling("acme", fmt.Sprint("made-up-", i), 0).Err())
		check(t, calling("off", fmt.Sprint("made-up-", i), time.Hour).Err())
	}
	refused(calling("off", "one-more", time.Minute))
	check(t, calling("off", "made-up-0", 2*time.Hour).Err())
	check(t, calling("off", "", time.Minute).Err())
	y.register(2) // takes a lane from each
	for _, z := range y.client.ZRangeWithScores(t.Context(), y.store.conn.Partition.Base()+"wide", 0, -1).Val() {
		if lanes := y.client.ZCard(t.Context(), fmt.Sprint(y.store.conn.Partition.Base(), "lanes:", z.Member)).Val(); float64(lanes) != z.Score {
			t.Errorf("%v has %d lanes, %v are counted", z.Member, lanes, z.Score)
		}
	}
	y.register(n)
	if widest, counted := wide(); widest != 0 || counted != "" {
		t.Errorf("when all have gone the widest has %v lanes, of %s that are wide", widest, counted)
	}
	check(t, calling("evil", "one-more", 0).Err())
	y.store.conn.Now = strconv.FormatInt(time.Now().Add(90*time.Minute).UnixMicro(), 10)
	for i := range few - 1 { // All have started but made-up-0, which is put off for longer.
		check(t, calling("off", fmt.Sprint("another-", i), time.Minute).Err())
	}
	refused(calling("off", "one-more", time.Minute))
}
