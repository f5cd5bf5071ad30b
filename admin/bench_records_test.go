package admin_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// recordsVariable is of the environment: how many tenants of BenchmarkRecords have a record.
const recordsVariable = "HEADGATE_RECORDS"

// What is asked a second while records are edited and read.
const (
	recordEdits  = 100
	recordReads  = 1000
	recordChecks = 10_000
	recordJobs   = 200
	// recordsServed is how many tenants a process serves.
	recordsServed = 1000
)

// BenchmarkRecords has a million tenants with a record each: what they take of Redis and of a process that serves some, edits and reads at a pace
// over HTTP beside checks and jobs, until when an edit is in force, and what the first job of a tenant costs that a process does not know.
func BenchmarkRecords(b *testing.B) {
	tenants := 1_000_000
	if text := os.Getenv(recordsVariable); text != "" {
		var err error
		tenants, err = strconv.Atoi(text)
		must(b, err)
	}
	for b.Loop() {
		r := newRecordsBench(b, tenants)
		b.ReportMetric(r.loaded, "stored/s")
		b.ReportMetric(r.bytes, "redis-B/record")
		r.run(10 * time.Second)
		for name, took := range map[string][]time.Duration{"edit": r.edits.all, "read": r.reads.all, "in-force": r.inForce.all} {
			b.ReportMetric(millis(took, 0.95), name+"-p95-ms")
		}
		b.ReportMetric(millis(r.inForce.all, 1), "in-force-most-ms")
		for name, n := range map[string]int{"edits/s": len(r.edits.all), "reads/s": len(r.reads.all), "checks/s": int(r.checks.Load()), "jobs/s": int(r.jobs.Load())} {
			b.ReportMetric(float64(n)/10, name)
		}
		b.ReportMetric(r.known(), "process-B/known")
		cold, warm := r.firstJobs()
		b.ReportMetric(millis(cold, 0.5), "first-job-ms")
		b.ReportMetric(millis(warm, 0.5), "next-job-ms")
	}
}

// TestTheBenchmarkOfRecordsDoesWhatItSays with a few of them.
func TestTheBenchmarkOfRecordsDoesWhatItSays(t *testing.T) {
	t.Parallel()
	r := newRecordsBench(t, 2000)
	r.run(time.Second)
	if len(r.edits.all) < recordEdits/2 || len(r.reads.all) < recordReads/4 || len(r.inForce.all) == 0 || r.checks.Load() == 0 || r.jobs.Load() == 0 {
		t.Errorf("%d edits, %d reads, %d seen in force, %d checks, %d jobs", len(r.edits.all), len(r.reads.all), len(r.inForce.all), r.checks.Load(), r.jobs.Load())
	}
	if n, err := r.store.CountRecords(t.Context()); err != nil || n != 2000 {
		t.Errorf("%d records, %v", n, err)
	}
	if cold, warm := r.firstJobs(); len(cold) != len(warm) || r.bytes <= 0 {
		t.Errorf("%d first jobs, %d next ones, %f B of Redis", len(cold), len(warm), r.bytes)
	}
}

// recordsBench is a server whose tenants have a record each.
type recordsBench struct {
	*configBench

	limiter  *limiter.Limiter
	producer *producer.Producer
	loaded   float64 // records a second that were stored
	bytes    float64 // of Redis, a record

	edits, reads, inForce times
	checks, jobs          atomic.Int64
}

// times collects what calls took.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) add(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, took)
}

// millis is the part of some times, the greatest for 1, in milliseconds.
func millis(all []time.Duration, part float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return float64(all[int(float64(len(all)-1)*part)].Microseconds()) / 1e3
}

func recordTenant(n int) string { return fmt.Sprintf("tenant-%07d", n) }

func newRecordsBench(tb testing.TB, tenants int) *recordsBench {
	tb.Helper()
	r := &recordsBench{configBench: newConfigBench(tb, 10)}
	r.tenants = tenants
	recording(r.plant)
	var err error
	r.limiter, err = limiter.New(r.store, limiter.Config{Timeout: time.Second})
	must(tb, err)
	tb.Cleanup(func() { must(tb, r.limiter.Close(context.WithoutCancel(tb.Context()))) })
	r.producer = r.newProducer()
	version, err := r.store.PolicyInForce(tb.Context())
	must(tb, err)
	before, began := r.memory(), time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	by := store.Intervention{Author: "benchmark", Act: "load"}
	for range 16 {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < tenants; n = int(next.Add(1)) - 1 {
				text := fmt.Appendf(nil, `{"limit":{"tokens":%d,"per":"1s","burst":%d}}`, 100+n%100, 100+n%100)
				if _, err := r.store.PutRecord(tb.Context(), store.RecordEdit{Tenant: recordTenant(n), Policy: version, Text: text, By: by}); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	r.loaded, r.bytes = float64(tenants)/time.Since(began).Seconds(), float64(r.memory()-before)/float64(tenants)
	return r
}

func (r *recordsBench) newProducer() *producer.Producer {
	p, err := producer.New(r.store, producer.Config{Timeout: 10 * time.Second})
	must(r.tb, err)
	return p
}

// memory is what Redis has in use, in bytes.
func (r *recordsBench) memory() int64 {
	info, err := redistest.Shared(r.tb).Client(r.tb).Info(r.tb.Context(), "memory").Result()
	must(r.tb, err)
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			must(r.tb, err)
			return n
		}
	}
	r.tb.Fatal("redis does not say what it has in use")
	return 0
}

// paced calls do so many times a second, in bundles of a millisecond's or more, until a time, each bundle by one of few.
func paced(until time.Time, perSecond int, all *sync.WaitGroup, do func(from time.Time)) {
	every := max(time.Millisecond, time.Second/time.Duration(perSecond))
	bundle := max(1, perSecond/1000)
	slots := make(chan struct{}, 64)
	all.Go(func() {
		for due := time.Now(); due.Before(until); due = due.Add(every) {
			time.Sleep(time.Until(due)) //nolint:forbidigo // the pace of calls
			slots <- struct{}{}
			all.Go(func() {
				for range bundle {
					do(due)
				}
				<-slots
			})
		}
	})
}

func (r *recordsBench) run(lasting time.Duration) {
	r.tb.Helper()
	until := time.Now().Add(lasting)
	ctx := r.tb.Context()
	var all sync.WaitGroup
	served := func() string { return recordTenant(rand.IntN(min(recordsServed, r.tenants/2))) }
	other := func() string { return recordTenant(r.tenants/2 + rand.IntN(r.tenants/2)) }
	paced(until, recordChecks, &all, func(time.Time) {
		if _, err := r.limiter.Check(ctx, limiter.Request{Tenant: served()}); err == nil {
			r.checks.Add(1)
		}
	})
	paced(until, recordJobs, &all, func(time.Time) {
		j := admission.NewJob(served(), "mail", "t", nil)
		if _, err := r.producer.Enqueue(ctx, j); err == nil {
			r.jobs.Add(1)
		}
	})
	paced(until, recordReads, &all, func(due time.Time) {
		if r.ask(http.MethodGet, "/api/v1/records/"+other(), "", "").status == http.StatusOK {
			r.reads.add(time.Since(due))
		}
	})
	paced(until, recordEdits-1, &all, func(due time.Time) {
		if r.put(other(), 1+rand.IntN(1000)) {
			r.edits.add(time.Since(due))
		}
	})
	all.Go(func() { r.watch(ctx, until) })
	all.Wait()
}

// put stores a record over HTTP.
func (r *recordsBench) put(tenant string, burst int) bool {
	body := fmt.Sprintf(`{"limit":{"tokens":%d,"per":"1s","burst":%d}}`, burst, burst)
	return r.ask(http.MethodPut, "/api/v1/records/"+tenant, body, "*").status == http.StatusOK
}

// watch changes the record of a tenant that a limiter serves back and forth, once a second, and sees when the limiter goes by it.
func (r *recordsBench) watch(ctx context.Context, until time.Time) {
	tenant := recordTenant(r.tenants - 1)
	for great := true; time.Now().Before(until); great = !great {
		began, burst := time.Now(), 5
		if great {
			burst = 1_000_000
		}
		if !r.put(tenant, burst) { //nolint:contextcheck // the test's own
			continue
		}
		for {
			v, err := r.limiter.Check(ctx, limiter.Request{Tenant: tenant, Cost: 10})
			if err != nil || v.Admitted == great {
				break
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // It asks each millisecond.
		}
		r.inForce.add(time.Since(began))
		time.Sleep(max(0, time.Until(began.Add(300*time.Millisecond)))) //nolint:forbidigo // the pace of edits
	}
}

// known is how many bytes a process has for each record that it knows.
func (r *recordsBench) known() float64 {
	document := policy.Default()
	document.TenantRecords = true
	compiled, err := document.Prepare()
	must(r.tb, err)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const many = 20 * recordsServed
	before := heap()
	for n := range many {
		must(r.tb, compiled.Learn(recordTenant(n), int64(n)+2, []byte(`{"limit":{"tokens":100,"per":"1s","burst":100}}`)))
	}
	used := float64(int64(heap())-int64(before)) / many
	runtime.KeepAlive(compiled)
	return used
}

// firstJobs returns what the first jobs of tenants take that a producer does not know, and what their next ones do.
func (r *recordsBench) firstJobs() (cold, warm []time.Duration) {
	p := r.newProducer()
	enqueue := func(tenant string) time.Duration {
		began := time.Now()
		_, err := p.Enqueue(r.tb.Context(), admission.NewJob(tenant, "mail", "t", nil))
		must(r.tb, err)
		return time.Since(began)
	}
	enqueue(recordTenant(0))
	for n := range 300 {
		tenant := recordTenant(n + 1)
		cold, warm = append(cold, enqueue(tenant)), append(warm, enqueue(tenant))
	}
	return cold, warm
}
