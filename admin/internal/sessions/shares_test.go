package sessions

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// yard is an API of several partitions whose handlers are called without a server.
type yard struct {
	tb       testing.TB
	sessions *Sessions
	store    store.Deployment
}

// called asks one handler, of a worker if it has a name.
func called[T any](y *yard, handle func(*route.Request) (*route.Answer, error), worker, body string) (value T) {
	y.tb.Helper()
	r := (&http.Request{Header: http.Header{}}).WithContext(y.tb.Context())
	r.SetPathValue("worker", worker)
	answer, err := handle(&route.Request{Request: r, Body: []byte(body)})
	if err != nil {
		y.tb.Fatal(err)
	}
	value, ok := answer.Value.(T)
	if !ok {
		y.tb.Fatalf("the answer is %T", answer.Value)
	}
	return value
}

// tenantIn returns a tenant of a partition.
func (y *yard) tenantIn(partition int, name string) string {
	for n := 0; ; n++ {
		if tenant := fmt.Sprint(name, "-", n); y.store.PartitionOf(tenant) == partition {
			return tenant
		}
	}
}

// TestASessionIsFairOverPartitions: one tenant floods alone in a partition, and five tenants are in each of two others. A session
// with fewer slots than partitions, and one with more, give each tenant the same, to within a slot, by how often slots were shared
// out: so each step shares them out, takes one job and ends it. How many jobs a client ends in the 100 ms between two sharings is
// its own affair, and nothing is promised of it.
func TestASessionIsFairOverPartitions(t *testing.T) {
	t.Parallel()
	const partitions, others, steps = 3, 10, 200
	for _, slots := range []int{2, 6} {
		t.Run(strconv.Itoa(slots), func(t *testing.T) {
			t.Parallel()
			s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions})
			if err != nil {
				t.Fatal(err)
			}
			y := &yard{t, New(Config{Store: s}), s}
			to, err := producer.New(s, producer.Config{Policy: new(policy.Unlimited())})
			if err != nil {
				t.Fatal(err)
			}
			in, tenants := map[string]int{y.tenantIn(0, "flood"): 0}, make([]float64, partitions)
			for i := range others {
				in[y.tenantIn(1+i%2, fmt.Sprint("other", i))] = 1 + i%2
			}
			for tenant, partition := range in {
				tenants[partition]++
				jobs := make([]admission.Job, steps/(others+1)*2)
				if partition == 0 {
					jobs = make([]admission.Job, steps)
				}
				for i := range jobs {
					jobs[i] = admission.NewJob(tenant, "mail", "welcome", nil)
				}
				if _, err := to.EnqueueBatch(t.Context(), jobs); err != nil {
					t.Fatal(err)
				}
			}

			worker := called[sessionView](y, y.sessions.register, "", fmt.Sprintf(`{"queues":[{"queue":"mail"}],"slots":%d,"lease":"1m"}`, slots)).Worker
			shares := y.sessions.shares.of(worker)
			had, due, spread := make([]float64, partitions), make([]float64, partitions), make([]float64, partitions)
			count := func() {
				for p, n := range *shares.slots.Load() {
					had[p] += float64(n)
				}
			}
			count()
			ran, of := map[string]int{}, make([]float64, partitions)
			for range steps {
				shares.mu.Lock()
				shares.mu.done = time.Time{} // Long ago.
				shares.mu.Unlock()
				jobs := called[leasesView](y, y.sessions.lease, worker, `{"max":1}`).Jobs
				if len(jobs) != 1 {
					t.Fatalf("%d jobs", len(jobs))
				}
				count()
				for p, n := range *shares.slots.Load() {
					chance := float64(n) / float64(slots)
					due[p] += chance
					spread[p] += chance * (1 - chance)
				}
				job := jobs[0]
				called[endedView](y, y.sessions.complete, worker, fmt.Sprintf(`{"tenant":%q,"id":%q,"token":%q}`, job.Tenant, job.ID, job.Token))
				ran[job.Tenant]++
				of[in[job.Tenant]]++
			}
			t.Logf("slots %.0f, jobs %.0f, due by lot %.0f: %v", had, of, due, ran)

			for p := range partitions {
				part := tenants[p] / (others + 1) * float64(slots) * (steps + 1)
				if math.Abs(had[p]-part) > 2 {
					t.Errorf("partition %d had %.0f slots in all, its part is %.1f", p, had[p], part)
				}
				if math.Abs(of[p]-due[p]) > 6*math.Sqrt(spread[p]) { // By chance once in 10⁹ times.
					t.Errorf("%.0f jobs of partition %d ran, by its slots %.1f should have", of[p], p, due[p])
				}
			}
			for tenant, partition := range in {
				if even := of[partition] / tenants[partition]; float64(ran[tenant]) < even/3 {
					t.Errorf("%d jobs of %s ran, an even part of its partition is %.1f", ran[tenant], tenant, even)
				}
			}
		})
	}
}

// TestLotsGoBySlots: of the partitions that are left the next is drawn with a chance as its slots, and one without slots comes last.
func TestLotsGoBySlots(t *testing.T) {
	t.Parallel()
	const draws = 60_000
	slots, first := []int{1, 0, 2, 3}, make([]float64, 4)
	for range draws {
		order := byLot([]int{0, 1, 2, 3}, &slots)
		first[order[0]]++
		if order[3] != 1 {
			t.Fatalf("%v with slots %v", order, slots)
		}
	}
	for i, n := range slots {
		if chance := float64(n) / 6; math.Abs(first[i]-draws*chance) > 6*math.Sqrt(draws*chance*(1-chance)) { // By chance once in 10⁹ times.
			t.Errorf("partition %d was first %.0f of %d times, it has %d of 6 slots", i, first[i], draws, n)
		}
	}
}
