package laws_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
)

// TestLoweredRateBinds asserts L1 over a lowered rate: a bucket that was emptied under a fast limit refills at the slow
// one that came after, however long ago it would have been full by the fast one. The store may forget a full bucket in
// three ways, each of which must know of the slow rate: with the tenant's whole hash when its time is over; then also
// when that time is set anew by a write of another bucket in it; and one by one where a tenant has very many.
func TestLoweredRateBinds(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	l := &lowered{site: s}
	for i := range sweptBuckets {
		l.slow = append(l.slow, scopedPath{"swept", fmt.Sprintf("mail-%d", i)})
	}
	l.slow = append(l.slow, scopedPath{"alone", "mail"}, scopedPath{"beside", "mail"})
	for _, path := range l.slow {
		if v := l.take(path, headgate.PerSecond(1000, 100), 100); v.Decision != headgate.Admitted {
			t.Fatalf("a full bucket refused its burst: %+v", v)
		}
	}
	slow := headgate.Limit{Tokens: 1, Per: time.Hour, Burst: 100}
	s.putPolicy(lua.PolicyUpdate{LongestFill: 100 * time.Hour})
	for round := range 35 {
		s.pause(100 * time.Millisecond)
		l.take(scopedPath{"beside", "hook"}, headgate.PerSecond(1000, 100), 1)
		l.take(scopedPath{"swept", fmt.Sprintf("hook-%d", round)}, headgate.PerSecond(1000, 100), 1)
		for _, path := range l.slow {
			if v := l.take(path, slow, 50); v.Decision == headgate.Admitted {
				t.Fatalf("law L1: 100 tokens and, %d ms later, 50 passed the bucket of %s:%s, whose burst is 100 and which refills one an hour",
					100*(round+1), path.tenant, path.queue)
			}
		}
	}
}

// sweptBuckets is so many that the full ones among them are removed one by one.
const sweptBuckets = 130

// lowered asks for jobs that have a limit at their queue alone.
type lowered struct {
	*site
	slow []scopedPath
}

type scopedPath struct{ tenant, queue string }

func (l *lowered) take(path scopedPath, limit headgate.Limit, cost headgate.Tokens) headgate.Verdict {
	l.Helper()
	j := l.job(path.tenant, path.queue, 0, headgate.DefaultClasses())
	j.Job.Cost, j.Limits = cost, &[headgate.Levels]headgate.Limit{headgate.LevelQueue: limit}
	verdicts, err := l.store.Admit(l.Context(), l.version, []lua.Candidate{j})
	l.check(err)
	return verdicts[0]
}
