package laws_test

import (
	"slices"
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
	floodJobs    = 100_000
	floodTenants = 10_000
	floodCrew    = 4 // producers, and as many workers
)

// What may be left of a partition in which nothing lives any more, and how large it may be: fields, members, entries
// or bytes. The largest is the state; it grows with queues and classes, which operators name, not with tenants.
var remains = map[string]int64{
	"state":                  64,
	"due":                    1 + floodCrew, // the pool's audit and the leases
	"wake":                   1,
	"workers":                floodCrew,
	"policy":                 64,
	"policies":               1 << 10, // bounded by number and size
	"audit":                  4 << 10, // bounded by number
	"weights":                16,
	"ready:" + mailPool.ID(): 0,
}

// TestNothingIsLeftOfAFlood asserts L12: when a hundred thousand jobs of ten thousand tenants have come and gone, and
// the buckets are full and the ended ids are forgotten, a handful of keys is left, each small.
func TestNothingIsLeftOfAFlood(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t, redistest.Options{}))
	s.putPolicy(store.PolicyUpdate{
		Window:  time.Second,
		Queues:  []store.QueueSettings{{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour}},
		Weights: []store.TenantWeight{{Class: admission.High, Tenant: tenantName(1), Weight: 3}},
	})
	crew := make([]*site, floodCrew)
	for i := range crew {
		own := *s
		own.client = s.server.Client(t)
		own.store = own.open(own.client)
		crew[i] = &own
		own.register("w"+strconv.Itoa(i), mailPool, 2*store.MaxBatchJobs, longLease)
	}
	var flooding, running sync.WaitGroup
	var done atomic.Int64
	for i, own := range crew {
		flooding.Go(func() { own.flood(i) })
		running.Go(func() { own.swallow("w"+strconv.Itoa(i), &done) })
	}
	flooding.Wait()
	mostKeys, err := s.client.DBSize(s.Context()).Result()
	s.check(err)
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if c := s.census(); c.Accepted != floodJobs || c.Left["completed"] != floodJobs || c.Live != 0 {
		t.Fatalf("census after the flood: %+v", c)
	}
	s.ebb()
	t.Logf("%d keys when the last job was in, %v at last", mostKeys, s.keys())

	for i, own := range crew {
		_, err := own.store.Partitions()[0].Reclaim(s.Context(), "w"+strconv.Itoa(i))
		s.check(err)
	}
	if left := s.keys(); slices.ContainsFunc(left, func(name string) bool { return strings.HasPrefix(name, "ready:") || name == "workers" }) {
		t.Errorf("keys left when all workers have gone: %v", left)
	}
}

// flood admits its part of the jobs in full batches.
func (s *site) flood(part int) {
	limits := &[admission.Levels]admission.Limit{
		admission.LevelGlobal: admission.PerSecond(1_000_000_000),
		admission.LevelTenant: admission.PerSecond(1_000_000).WithBurst(1000),
	}
	classes := admission.DefaultClasses()
	all := make([]admission.Job, store.MaxBatchJobs)
	batch := make([]store.Candidate, 0, store.MaxBatchJobs)
	for n := part; n < floodJobs; n += floodCrew {
		j := &all[len(batch)]
		class := n / floodTenants % len(classes)
		*j = admission.Job{
			ID: strconv.Itoa(n), Tenant: tenantName(n % floodTenants), Queue: "mail", Type: "t", Priority: classes[class].Name, Cost: 1,
		}
		batch = append(batch, store.Candidate{Job: j, Class: class, Limits: limits})
		if len(batch) < store.MaxBatchJobs && n+floodCrew < floodJobs {
			continue
		}
		verdicts, err := s.store.Partitions()[0].Admit(s.Context(), s.version, batch)
		if err != nil {
			s.Error(err)
			return
		}
		for _, v := range verdicts {
			if v.Decision != admission.Admitted {
				s.Errorf("admit: %+v", v)
				return
			}
		}
		batch = batch[:0]
	}
}

// swallow completes jobs until all are done.
func (s *site) swallow(worker string, done *atomic.Int64) {
	ends := make([]store.Finish, 0, store.MaxBatchJobs)
	for done.Load() < floodJobs && !s.Failed() {
		leases, err := s.store.Partitions()[0].Read(s.Context(), worker, mailPool.ID(), store.MaxBatchJobs, 20*time.Millisecond, false)
		if err != nil {
			s.Error(err)
			return
		}
		if len(leases) == 0 {
			continue
		}
		ends = ends[:0]
		for _, l := range leases {
			ends = append(ends, complete(l))
		}
		if _, _, err := s.store.Partitions()[0].Finish(s.Context(), mailPool.ID(), "worker", ends); err != nil {
			s.Error(err)
			return
		}
		done.Add(int64(len(ends)))
	}
}

// ebb promotes until what is left is what may be.
func (s *site) ebb() {
	s.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for {
		next := s.promote()
		faults := s.tooMuch()
		if len(faults) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("law L12: left are\n%s", strings.Join(faults, "\n"))
		}
		if !next.More {
			s.pause(100 * time.Millisecond)
		}
	}
}

// keys names the keys of the partition, without its base.
func (s *site) keys() []string {
	s.Helper()
	all, err := s.client.Keys(s.Context(), redisstore.Keys(s.store).Base()+"*").Result()
	s.check(err)
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], redisstore.Keys(s.store).Base())
	}
	slices.Sort(all)
	return all
}

// tooMuch says which keys are there that may not be, or are too large.
func (s *site) tooMuch() (faults []string) {
	s.Helper()
	for _, name := range s.keys() {
		most, ok := remains[name]
		if !ok {
			faults = append(faults, name)
		} else if size := s.size(name); size > most {
			faults = append(faults, name+" with "+strconv.FormatInt(size, 10)+", at most "+strconv.FormatInt(most, 10))
		}
		if len(faults) > 20 {
			return faults
		}
	}
	return faults
}

func (s *site) size(name string) int64 {
	s.Helper()
	key := s.key(name)
	kind, err := s.client.Type(s.Context(), key).Result()
	s.check(err)
	var size int64
	switch kind {
	case "hash":
		size, err = s.client.HLen(s.Context(), key).Result()
	case "zset":
		size, err = s.client.ZCard(s.Context(), key).Result()
	case "stream":
		size, err = s.client.XLen(s.Context(), key).Result()
	case "string":
		size, err = s.client.StrLen(s.Context(), key).Result()
	case "none": // It has just gone.
	default:
		s.Fatalf("key %s is a %s", name, kind)
	}
	s.check(err)
	return size
}
