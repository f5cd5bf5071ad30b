package producer

import (
	"context"
	"fmt"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

// maxPaths is how many ways of jobs are counted between two flushes; of those beyond only the sum of all is.
const maxPaths = 10_000

// tally counts what limits have decided, by the way of the jobs, while Run is there to flush it.
type tally struct {
	mu struct {
		sync.Mutex
		running int // calls of Run
		paths   map[path]sum
	}
}

// path is the way of a job; the zero path is that of all beyond maxPaths.
type path struct {
	tenant, queue string
	class         headgate.Priority
}

type sum struct {
	allowed, refused int64
	tokens           headgate.Tokens
}

func (s sum) plus(o sum) sum {
	return sum{s.allowed + o.allowed, s.refused + o.refused, s.tokens + o.tokens}
}

// begin makes note count; end is for who began.
func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.running++
}

func (t *tally) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.running--; t.mu.running == 0 {
		t.mu.paths = nil
	}
}

// note counts the jobs of a flight. Duplicates, and jobs that were refused for another reason, are none of the limits'.
func (t *tally) note(entries []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.running == 0 {
		return
	}
	for _, e := range entries {
		one := sum{tokens: e.job.Cost}
		switch {
		case e.verdict.Decision == headgate.Admitted:
			one.allowed = 1
		case e.verdict.Reason == headgate.ReasonLimited || e.verdict.Reason == headgate.ReasonTooCostly:
			one.refused = 1
		default:
			continue
		}
		t.addLocked(path{e.job.Tenant, e.job.Queue, e.job.Priority}, one)
	}
}

func (t *tally) addLocked(p path, one sum) {
	if t.mu.paths == nil {
		t.mu.paths = make(map[path]sum)
	}
	if _, known := t.mu.paths[p]; !known && len(t.mu.paths) >= maxPaths {
		p = path{}
	}
	t.mu.paths[p] = t.mu.paths[p].plus(one)
}

// take returns what was counted, and begins anew.
func (t *tally) take() map[path]sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.mu.paths
	t.mu.paths = nil
	return taken
}

// giveBack adds what was taken and not stored.
func (t *tally) giveBack(taken map[path]sum) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, s := range taken {
		t.addLocked(p, s)
	}
}

// flush stores what was counted. What may have been stored is not stored again; what was certainly not is kept.
func (t *tally) flush(ctx context.Context, store *lua.Store, snapshot *policy.Compiled) error {
	taken := t.take()
	if len(taken) == 0 {
		return nil
	}
	done, err := store.Count(ctx, scopeCounts(taken, snapshot))
	if err == nil {
		return nil
	}
	if done == 0 && !lua.InDoubt(err) {
		t.giveBack(taken)
		return err
	}
	return fmt.Errorf("counts of %d ways are lost: %w", len(taken), err)
}

// scopeCounts sums up by scope, at every level of each way.
func scopeCounts(taken map[path]sum, snapshot *policy.Compiled) []lua.ScopeCount {
	sums := map[headgate.Scope]sum{}
	for p, s := range taken {
		sums[headgate.Global] = sums[headgate.Global].plus(s)
		if p == (path{}) {
			continue
		}
		for level := headgate.LevelTenant; level < headgate.Levels; level++ {
			scope := headgate.ScopeAt(level, p.tenant, p.queue, p.class)
			sums[scope] = sums[scope].plus(s)
		}
	}
	counts := make([]lua.ScopeCount, 0, len(sums))
	for scope, s := range sums {
		counts = append(counts, lua.ScopeCount{
			Scope: scope, Always: scope == headgate.Global || snapshot.Observes(scope), Allowed: s.allowed, Refused: s.refused, Tokens: s.tokens,
		})
	}
	return counts
}
