package tally

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

const (
	// maxPaths is how many ways are counted between two flushes; of those beyond only the sum of all is.
	maxPaths = 10_000
	// maxTyped is how many of these are of a type of jobs, which is a caller's word; those beyond are counted without it.
	maxTyped = 1000
	// maxValues is how many values of dimensions are: their names are callers' words, and those beyond are not counted.
	maxValues = 4096
	// flushEvery is how often the counts are stored, and lastFlush how long the last flush may take.
	flushEvery = time.Second
	lastFlush  = 2 * time.Second
)

// Tally counts decisions by their way. The zero Tally is ready, and may be used by several goroutines.
type Tally struct {
	mu struct {
		sync.Mutex
		running int // calls of Run
		// armed is the flush that is ordered and has not begun, last the one that was ordered last.
		armed, last *armed
		paths       map[Path]Sum
		typed       int // paths of a type
		// values are those of dimensions, up to maxValues.
		values map[Path]Sum
		names  names
	}
}

// armed is a flush that NoteAlone has ordered.
type armed struct {
	timer *time.Timer
	flush func()
	done  chan struct{} // closed when it has ended
}

// Path is the way of a decision, its last names empty where it ends above them; that of the zero Path is the global scope. That of a value of a dimension has its owner in
// the place of the tenant and its key in that of the queue, none for the bucket that values share: it is counted by itself, where the policy says when a limit is nearly used.
type Path struct {
	Tenant, Queue string
	Class         admission.Priority
	// Type is that of a job where decisions are counted by it, too (policy.Compiled.CountsType); empty else.
	Type string
}

// Sum is what was decided.
type Sum struct {
	Allowed, Refused int64
	// Tokens were asked for.
	Tokens admission.Tokens
}

func (s Sum) plus(o Sum) Sum {
	return Sum{s.Allowed + o.Allowed, s.Refused + o.Refused, s.Tokens + o.Tokens}
}

// Run stores the counts once a second until ctx ends, and then once more. Note counts nothing while it is not called.
// Snapshot returns the policy by which decisions are made, nil before the first; failed is told what was not stored.
func (t *Tally) Run(ctx context.Context, store store.Deployment, snapshot func() *policy.Compiled, failed func(error)) {
	t.begin()
	defer t.end()
	flush := func(ctx context.Context) {
		if err := t.flush(ctx, store, snapshot()); err != nil {
			failed(err)
		}
	}
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			flush(ctx)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
			defer cancel()
			flush(ctx)
			return
		}
	}
}

func (t *Tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.running++
}

func (t *Tally) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.running--; t.mu.running == 0 && t.mu.armed == nil {
		t.mu.paths, t.mu.values, t.mu.names = nil, nil, names{}
	}
}

// Note counts what note adds, while Run runs.
func (t *Tally) Note(note func(add func(Path, Sum))) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.running > 0 {
		note(t.addLocked)
	}
}

// NoteJobs notes jobs by name, for how many different ones there are in an hour, where the policy has rates watched. They are told with the
// next counts.
func (t *Tally) NoteJobs(note func(add func(queue, tenant, id string))) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.names.begin(time.Now())
	note(func(queue, tenant, id string) { t.mu.names.addJob(queue, tenant+":"+id) })
}

// NoteAlone counts what note adds, also while Run does not run: then flush is called a second after the first note that is not
// stored, from a goroutine of its own, and is to call Flush. So there is no goroutine while nothing is decided.
func (t *Tally) NoteAlone(note func(add func(Path, Sum)), flush func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.addLocked)
	if t.mu.running > 0 || t.mu.armed != nil || len(t.mu.paths)+len(t.mu.values) == 0 {
		return
	}
	a := &armed{flush: flush, done: make(chan struct{})}
	a.timer = time.AfterFunc(flushEvery, func() { t.fire(a) })
	t.mu.armed, t.mu.last = a, a
}

// fire makes an ordered flush. What is noted from now on orders another.
func (t *Tally) fire(a *armed) {
	defer close(a.done)
	t.mu.Lock()
	t.mu.armed = nil
	t.mu.Unlock()
	a.flush()
}

// Hurry makes the flush that NoteAlone has ordered now, and waits for one that is under way.
func (t *Tally) Hurry() {
	t.mu.Lock()
	a := t.mu.last
	t.mu.Unlock()
	switch {
	case a == nil:
	case a.timer.Stop():
		t.fire(a)
	default:
		<-a.done
	}
}

// Flush stores what was counted, within two seconds, whether ctx ends or not. What certainly was not stored is kept.
func (t *Tally) Flush(ctx context.Context, store store.Deployment, snapshot *policy.Compiled) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	return t.flush(ctx, store, snapshot)
}

func (t *Tally) addLocked(p Path, one Sum) {
	if strings.HasPrefix(p.Tenant, admission.DimensionMark) {
		t.addValueLocked(p, one)
		return
	}
	if t.mu.paths == nil {
		t.mu.paths = make(map[Path]Sum)
	}
	if _, known := t.mu.paths[p]; !known && p.Type != "" {
		if t.mu.typed++; t.mu.typed > maxTyped {
			p.Type = ""
		}
	}
	if _, known := t.mu.paths[p]; !known && len(t.mu.paths) >= maxPaths {
		p = Path{}
	}
	t.mu.paths[p] = t.mu.paths[p].plus(one)
}

func (t *Tally) addValueLocked(p Path, one Sum) {
	if t.mu.values == nil {
		t.mu.values = make(map[Path]Sum)
	}
	if sum, known := t.mu.values[p]; known || len(t.mu.values) < maxValues {
		t.mu.values[p] = sum.plus(one)
	}
}

// Store stores what note adds, with what could not be stored before. It is for whoever counts for itself, and runs no Run.
func (t *Tally) Store(ctx context.Context, store store.Deployment, snapshot *policy.Compiled, note func(add func(Path, Sum))) error {
	t.Keep(note)
	return t.flush(ctx, store, snapshot)
}

// Keep counts what note adds, for the next Store.
func (t *Tally) Keep(note func(add func(Path, Sum))) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.addLocked)
}

// counted is what was counted by way, that of values of dimensions apart, and names that are to be told, by queue.
type counted struct {
	paths, values map[Path]Sum
	told          map[string]fresh
}

// take returns what was counted, and begins anew. Names are told where rates are watched.
func (t *Tally) take(watched bool) (c counted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.paths, c.values = t.mu.paths, t.mu.values
	t.mu.paths, t.mu.values, t.mu.typed = nil, nil, 0
	if !watched {
		t.mu.names = names{}
		return c
	}
	t.mu.names.begin(time.Now())
	for p := range c.paths {
		if p.Queue != "" {
			t.mu.names.addTenant(p.Queue, p.Tenant)
		}
	}
	c.told = t.mu.names.take()
	return c
}

// giveBack adds what was taken and not stored.
func (t *Tally) giveBack(c counted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, s := range c.paths {
		t.addLocked(p, s)
	}
	for p, s := range c.values {
		t.addLocked(p, s)
	}
	t.mu.names.giveBack(c.told)
}

// flush stores what was counted. What may have been stored is not stored again; what was certainly not is kept.
func (t *Tally) flush(ctx context.Context, s store.Deployment, snapshot *policy.Compiled) error {
	if snapshot == nil { // Then nothing was decided either.
		return nil
	}
	taken := t.take(snapshot.Watched())
	counts := append(scopeCounts(taken.paths, taken.told, snapshot), valueCounts(taken.values, snapshot)...)
	if len(counts) == 0 {
		return nil
	}
	done, err := s.Count(ctx, counts)
	if err == nil {
		return nil
	}
	if done == 0 && !store.InDoubt(err) {
		t.giveBack(taken)
		return err
	}
	t.giveBack(counted{told: taken.told}) // The same name twice makes no difference.
	return fmt.Errorf("counts of %d ways are lost: %w", len(taken.paths)+len(taken.values), err)
}

// scopeCounts sums up by scope, at every level of each way and by the type of its jobs, and by queue, where the policy has rates watched.
func scopeCounts(taken map[Path]Sum, told map[string]fresh, snapshot *policy.Compiled) []store.ScopeCount {
	sums, queues, watched := map[admission.Scope]Sum{}, map[string]Sum{}, snapshot.Watched()
	for p, s := range taken {
		if watched && p.Queue != "" {
			queues[p.Queue] = queues[p.Queue].plus(s)
		}
		for level := admission.LevelGlobal; level <= p.Level(); level++ {
			scope := admission.ScopeAt(level, p.Tenant, p.Queue, p.Class)
			sums[scope] = sums[scope].plus(s)
		}
		if p.Type != "" {
			scope := admission.ScopeAt(admission.LevelPriority, p.Tenant, p.Queue, admission.OfType(p.Type))
			sums[scope] = sums[scope].plus(s)
		}
	}
	counts := make([]store.ScopeCount, 0, len(sums)+len(queues))
	for scope, s := range sums {
		counts = append(counts, store.ScopeCount{
			Scope: scope, Always: scope == admission.Global || snapshot.Observes(scope), Allowed: s.Allowed, Refused: s.Refused, Tokens: s.Tokens,
			Watched: watched,
		})
	}
	for queue := range told { // Its jobs may have been noted before they are counted.
		queues[queue] = queues[queue].plus(Sum{})
	}
	for queue, s := range queues {
		names := told[queue]
		counts = append(counts, store.ScopeCount{Queue: queue, Allowed: s.Allowed, Refused: s.Refused, Tenants: names.tenants, Jobs: names.jobs, Watched: true})
	}
	return counts
}

// valueCounts are those of values of dimensions that used most of their limits, at most store.CountedValues.
func valueCounts(values map[Path]Sum, snapshot *policy.Compiled) []store.ScopeCount {
	if snapshot.WarnAt() == 0 {
		return nil
	}
	counts := make([]store.ScopeCount, 0, len(values))
	for p, s := range values {
		limits, _, declared := snapshot.DimensionLimits(p.Tenant, p.Queue)
		limit := &limits[admission.LevelQueue]
		if !declared || limit.Disabled || limit.Tokens == 0 {
			continue
		}
		scope := admission.Scope(p.Tenant)
		if p.Queue != "" {
			scope = admission.ScopeAt(admission.LevelQueue, p.Tenant, p.Queue, "")
		}
		part := float64(s.Tokens) / max(float64(limit.Burst), float64(limit.Rate())*minuteSeconds)
		counts = append(counts, store.ScopeCount{Scope: scope, Allowed: s.Allowed, Refused: s.Refused, Tokens: s.Tokens, OfLimit: max(1, int64(min(part, mostOfLimit)*1e6))})
	}
	slices.SortFunc(counts, func(a, b store.ScopeCount) int {
		return cmp.Or(cmp.Compare(b.OfLimit, a.OfLimit), cmp.Compare(a.Scope, b.Scope))
	})
	return counts[:min(len(counts), store.CountedValues)]
}

// mostOfLimit is the largest multiple of a limit that is told.
const (
	mostOfLimit   = 1000
	minuteSeconds = 60
)

// Level is that at which the way ends.
func (p Path) Level() admission.Level {
	switch {
	case p.Class != "":
		return admission.LevelPriority
	case p.Queue != "":
		return admission.LevelQueue
	case p.Tenant != "":
		return admission.LevelTenant
	}
	return admission.LevelGlobal
}
