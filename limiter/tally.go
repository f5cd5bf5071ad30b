package limiter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// decided is what was decided on a way and not stored yet. A check adds to one word.
type decided struct {
	// checks are those admitted, and in the upper half those refused.
	checks atomic.Uint64
	// beyond are the tokens that they asked for above one each.
	beyond atomic.Int64
}

const (
	oneAdmitted uint64 = 1
	oneRefused  uint64 = 1 << 32
)

// add counts a check, and reports whether it is the first since take.
func (d *decided) add(one uint64, cost admission.Tokens) (first bool) {
	if cost != 1 {
		d.beyond.Add(int64(cost) - 1)
	}
	return d.checks.Add(one) == one
}

// take returns what was counted, and begins anew.
func (d *decided) take() tally.Sum {
	checks := d.checks.Swap(0)
	s := tally.Sum{Allowed: int64(checks % oneRefused), Refused: int64(checks / oneRefused)}
	s.Tokens = admission.Tokens(s.Allowed + s.Refused + d.beyond.Swap(0))
	return s
}

// reports stores what was decided, a second after the first check that is not stored. Its methods may be called from several
// goroutines.
type reports struct {
	tally tally.Tally
	// due counts reports that are to be made.
	due sync.WaitGroup

	mu struct {
		sync.Mutex
		// ways are those with something to report; timer, if it is not nil, ends with their report.
		ways   []*way
		timer  *time.Timer
		closed bool
	}
}

// reportAfter is how long counts wait, and reportTimeout how long it may take to store them.
const (
	reportAfter   = time.Second
	reportTimeout = 2 * time.Second
)

// note counts a check that the limits on its way have decided, if checks are counted.
func (l *Limiter) note(ctx context.Context, w *way, one uint64, cost admission.Tokens) {
	if l.config.Minutes && w.decided.add(one, cost) {
		l.reports.add(func() { l.report(context.WithoutCancel(ctx), false) }, w)
	}
}

// noteVerdict counts a check unless something else than limits has refused it.
func (l *Limiter) noteVerdict(ctx context.Context, w *way, verdict *Verdict, cost admission.Tokens) {
	switch {
	case verdict.Admitted:
		l.note(ctx, w, oneAdmitted, cost)
	case verdict.Reason == admission.ReasonLimited || verdict.Reason == admission.ReasonTooCostly:
		l.note(ctx, w, oneRefused, cost)
	}
}

// noteReserved counts an estimate that limits have decided, as a check of as much: of its dimensions where the policy has limits told of that are nearly
// used. It is by value, so that nothing is on the heap where checks are not counted.
func (l *Limiter) noteReserved(ctx context.Context, inForce *policy.Compiled, q store.Question, beside []store.Question, verdict admission.Verdict, took []store.Taken) {
	one := tally.Sum{Allowed: 1, Tokens: q.Cost}
	if verdict.Decision != admission.Admitted {
		if verdict.Reason != admission.ReasonLimited && verdict.Reason != admission.ReasonTooCostly {
			return
		}
		one.Allowed, one.Refused = 0, 1
	}
	if inForce.WarnAt() == 0 {
		beside = nil
	}
	home := l.leader()
	home.policy.CompareAndSwap(nil, inForce) // By which its report goes.
	home.reports.tally.Keep(func(add func(tally.Path, tally.Sum)) {
		add(tally.Path{Tenant: q.Tenant, Queue: q.Queue, Class: q.Class}, one)
		for i := range beside {
			at := tally.Path{Tenant: beside[i].Tenant, Queue: beside[i].Queue}
			shared := func(way store.Taken) bool {
				return way.Shared && way.Question.Tenant == at.Tenant && way.Question.Queue == at.Queue
			}
			if verdict.Scope == admission.Scope(at.Tenant) || slices.ContainsFunc(took, shared) {
				at.Queue = ""
			}
			add(at, one)
		}
	})
	home.reports.add(func() { home.report(context.WithoutCancel(ctx), false) })
}

// add notes that ways have something to report, which report does after a while.
func (r *reports) add(report func(), ways ...*way) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.ways = append(r.mu.ways, ways...)
	if r.mu.timer != nil || r.mu.closed {
		return
	}
	r.due.Add(1)
	r.mu.timer = time.AfterFunc(reportAfter, func() {
		defer r.due.Done()
		report()
	})
}

// next returns the ways that have something to report, and lets the next one begin a new report.
func (r *reports) next() []*way {
	r.mu.Lock()
	defer r.mu.Unlock()
	ways := r.mu.ways
	r.mu.ways, r.mu.timer = nil, nil
	return ways
}

// close lets no report begin any more, and waits for the one under way.
func (r *reports) close() {
	r.mu.Lock()
	if r.mu.timer != nil && r.mu.timer.Stop() {
		r.due.Done()
	}
	r.mu.closed = true
	r.mu.Unlock()
	r.due.Wait()
}

// report stores what was decided, of scopes all or those with the most, or leaves it for later while Redis is away.
func (l *Limiter) report(ctx context.Context, all bool) {
	ways := l.reports.next()
	again := func() { l.report(ctx, false) }
	if l.breaker.State() != breaker.Closed {
		l.reports.add(again, ways...)
		return
	}
	timed, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	more, err := l.reports.tally.Store(timed, l.store, l.policy.Load(), all, func(add func(tally.Path, tally.Sum)) {
		for _, w := range ways {
			at := tally.Path{Tenant: w.route.tenant, Queue: w.route.queue, Class: w.route.class}
			if w.counting.Load() == countedShared {
				at.Queue = ""
			}
			add(at, w.decided.take())
		}
	})
	if err != nil {
		l.config.Logger.Warn().Err(err).Msg("decisions are not counted")
	}
	if more {
		l.reports.add(again)
	}
}
