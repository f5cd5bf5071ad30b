package laws_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestLoweredRateBinds asserts L1 over a lowered rate: a bucket that was emptied under a fast limit refills at the slow
// one that came after, however long ago it would have been full by the fast one. The store may forget a full bucket in
// three ways, each of which must know of the slow rate: with the tenant's whole hash when its time is over; then also
// when that time is set anew by a write of another bucket in it; and one by one where a tenant has very many.
func TestLoweredRateBinds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		buckets int
		beside  func(l *lowered, tenant string)
	}{
		"with its hash":                    {3, func(*lowered, string) {}},
		"with its hash, whose end is anew": {3, (*lowered).renew},
		"among very many":                  {sweptBuckets, (*lowered).crowd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &lowered{newSite(t, redistest.Shared(t))}
			var queues []string
			for i := range row.buckets {
				queues = append(queues, fmt.Sprintf("mail-%d", i))
			}
			for call := range slices.Chunk(queues, store.MaxBatchJobs) { // A second in a busy machine's hands must not fill them.
				for _, v := range l.takeAll("ann", call, admission.PerSecond(20).WithBurst(100), 100) {
					if v.Decision != admission.Admitted {
						t.Fatalf("a full bucket refused its burst: %+v", v)
					}
				}
			}
			slow := admission.Limit{Tokens: 1, Per: time.Hour, Burst: 100}
			l.putPolicy(store.PolicyUpdate{LongestFill: 100 * time.Hour})
			l.pause(5100 * time.Millisecond) // By the fast limit they are all full now, and none was when it changed.
			row.beside(l, "ann")
			left, err := l.client.PTTL(l.Context(), redisstore.Keys(l.store).Buckets("ann")).Result()
			l.check(err)
			if left < 99*time.Hour {
				t.Errorf("law L1: the buckets are forgotten in %s, and full in 100 h", left)
			}
			for _, queue := range queues {
				if v := l.take("ann", queue, slow, 50); v.Decision == admission.Admitted {
					t.Fatalf("law L1: 100 tokens and 5.1 s later 50 passed the bucket of %s, whose burst is 100 and which refills one an hour", queue)
				}
			}
		})
	}
}

// renew writes a bucket that is full later than all others in its hash were before.
func (l *lowered) renew(tenant string) {
	l.take(tenant, "hook", admission.Limit{Tokens: 1, Per: 10 * time.Second, Burst: 1}, 1)
}

// crowd writes new buckets, each of which makes room by removing full ones.
func (l *lowered) crowd(tenant string) {
	for i := range 10 {
		l.take(tenant, fmt.Sprintf("hook-%d", i), admission.PerSecond(1000).WithBurst(100), 1)
	}
}

// sweptBuckets is so many that the full ones among them are removed one by one.
const sweptBuckets = 130

// lowered asks for jobs that have a limit at their queue alone.
type lowered struct{ *site }

func (l *lowered) take(tenant, queue string, limit admission.Limit, cost admission.Tokens) admission.Verdict {
	l.Helper()
	return l.takeAll(tenant, []string{queue}, limit, cost)[0]
}

func (l *lowered) takeAll(tenant string, queues []string, limit admission.Limit, cost admission.Tokens) []admission.Verdict {
	l.Helper()
	jobs := make([]store.Candidate, len(queues))
	for i, queue := range queues {
		jobs[i] = l.job(tenant, queue, 0, admission.DefaultClasses())
		jobs[i].Job.Cost, jobs[i].Limits = cost, &[admission.Levels]admission.Limit{admission.LevelQueue: limit}
	}
	verdicts, err := l.store.Partitions()[0].Admit(l.Context(), l.version, jobs)
	l.check(err)
	return verdicts
}
