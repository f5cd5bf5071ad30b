package tally

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
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
	// maxRest is how many scopes are counted that others had more than and that are not stored yet; of those beyond only the sum of all is.
	maxRest = 10_000
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
		// alone is a flush of NoteAlone that is not ordered as Run runs: its end orders it, where anything is left.
		alone func(all bool) (more bool)
		paths map[Path]Sum
		typed int // paths of a type
		// rest is what was counted of scopes before the last flush, which stored those that others had less than.
		rest map[admission.Scope]Sum
		// values are those of dimensions, up to maxValues.
		values map[Path]Sum
		names  names
	}
}

// armed is a flush that NoteAlone has ordered.
type armed struct {
	timer *time.Timer
	flush func(all bool) (more bool)
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
	flush := func(ctx context.Context, all bool) {
		if _, err := t.flush(ctx, store, snapshot(), all); err != nil {
			failed(err)
		}
	}
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			flush(ctx, false)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
			defer cancel()
			flush(ctx, true)
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
	if t.mu.running--; t.mu.running > 0 || t.mu.armed != nil {
		return
	}
	alone := t.mu.alone
	t.mu.alone = nil
	switch {
	case alone == nil: // Nobody stores what is left.
		t.mu.paths, t.mu.values, t.mu.rest, t.mu.names = nil, nil, nil, names{}
	case len(t.mu.paths)+len(t.mu.values)+len(t.mu.rest) > 0: // It was noted during the last flush, or that has failed.
		t.armLocked(alone)
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
// stored, from a goroutine of its own, and is to call Flush and to tell what that returns. So there is no goroutine while nothing is decided.
func (t *Tally) NoteAlone(note func(add func(Path, Sum)), flush func(all bool) (more bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.addLocked)
	if len(t.mu.paths)+len(t.mu.values) > 0 {
		t.armLocked(flush)
	}
}

// armLocked orders a flush, unless one is ordered or Run runs.
func (t *Tally) armLocked(flush func(all bool) (more bool)) {
	if t.mu.running > 0 {
		t.mu.alone = flush
		return
	}
	if t.mu.armed != nil {
		return
	}
	a := &armed{flush: flush, done: make(chan struct{})}
	a.timer = time.AfterFunc(flushEvery, func() { t.fire(a, false) })
	t.mu.armed, t.mu.last = a, a
}

// fire makes an ordered flush. What is noted from now on orders another, and so does what it has left.
func (t *Tally) fire(a *armed, all bool) {
	defer close(a.done)
	t.mu.Lock()
	t.mu.armed = nil
	t.mu.Unlock()
	if a.flush(all) {
		t.mu.Lock()
		t.armLocked(a.flush)
		t.mu.Unlock()
	}
}

// Hurry makes the flush that is ordered now, of all that was counted, when one that is under way has ended.
func (t *Tally) Hurry() {
	for {
		t.mu.Lock()
		last, ordered := t.mu.last, t.mu.armed != nil
		t.mu.Unlock()
		if last == nil {
			return
		}
		if ordered && last.timer.Stop() {
			t.fire(last, true)
			return
		}
		<-last.done
		t.mu.Lock()
		ordered = t.mu.armed != nil
		t.mu.Unlock()
		if !ordered {
			return
		}
	}
}

// Flush stores what was counted, within two seconds, whether ctx ends or not: of scopes all, or those with the most, in which case more says that there are
// others. What certainly was not stored is kept.
func (t *Tally) Flush(ctx context.Context, store store.Deployment, snapshot *policy.Compiled, all bool) (more bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	return t.flush(ctx, store, snapshot, all)
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

// Store stores what note adds, with what could not be stored before, of scopes all or those with the most, as Flush. It is for whoever counts for itself, and
// runs no Run.
func (t *Tally) Store(ctx context.Context, store store.Deployment, snapshot *policy.Compiled, all bool, note func(add func(Path, Sum))) (more bool, err error) {
	t.Keep(note)
	return t.flush(ctx, store, snapshot, all)
}

// Keep counts what note adds, for the next Store.
func (t *Tally) Keep(note func(add func(Path, Sum))) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.addLocked)
}

// counted is what was counted by way, that of values of dimensions apart, what the last flush left, and names that are to be told, by queue.
type counted struct {
	paths, values map[Path]Sum
	rest          map[admission.Scope]Sum
	told          map[string]fresh
}

// take returns what was counted, and begins anew. Names are told where rates are watched.
func (t *Tally) take(watched bool) (c counted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.paths, c.values, c.rest = t.mu.paths, t.mu.values, t.mu.rest
	t.mu.paths, t.mu.values, t.mu.rest, t.mu.typed = nil, nil, nil, 0
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
	for scope, s := range c.rest {
		if t.mu.rest == nil {
			t.mu.rest = make(map[admission.Scope]Sum, len(c.rest))
		}
		if sum, known := t.mu.rest[scope]; known || len(t.mu.rest) < maxRest {
			t.mu.rest[scope] = sum.plus(s)
		}
	}
	t.mu.names.giveBack(c.told)
}

// flush stores what was counted. What may have been stored is not stored again; what was certainly not is kept.
func (t *Tally) flush(ctx context.Context, s store.Deployment, snapshot *policy.Compiled, all bool) (more bool, err error) {
	if snapshot == nil { // Then nothing was decided either.
		return false, nil
	}
	taken := t.take(snapshot.Watched())
	counts := scopeCounts(taken, snapshot)
	var rest map[admission.Scope]Sum
	if !all {
		counts, rest = most(counts)
	}
	counts = append(counts, valueCounts(taken.values, snapshot)...)
	if len(counts) == 0 {
		return false, nil
	}
	done := 0
	err = callback.Try(func() (err error) { // Timers call this: a panic of a client's hook would end the process.
		done, err = s.Count(ctx, counts)
		return err
	})
	_, panicked := errors.AsType[*callback.PanicError](err)
	if done == 0 && err != nil && !panicked && !store.InDoubt(err) {
		t.giveBack(taken)
		return false, err
	}
	t.giveBack(counted{rest: rest})
	if err == nil {
		return len(rest) > 0, nil
	}
	t.giveBack(counted{told: taken.told}) // The same name twice makes no difference.
	if done == len(counts) {
		return false, fmt.Errorf("names are told later: %w", err)
	}
	return false, fmt.Errorf("counts of %d ways are lost: %w", len(taken.paths)+len(taken.values), err)
}

// most returns the counts of scopes with the most, of as many as are kept of all processes together, beside those that are counted always and queues; rest is
// what is left of up to maxRest more. Three scopes of each of 10,000 tenants would be 470 calls, and make room for each other.
func most(counts []store.ScopeCount) (first []store.ScopeCount, rest map[admission.Scope]Sum) {
	others := make([]store.ScopeCount, 0, len(counts))
	for _, c := range counts {
		if c.Always || c.Queue != "" {
			first = append(first, c)
		} else {
			others = append(others, c)
		}
	}
	if len(others) <= store.TopScopes {
		return counts, nil
	}
	// Of as many decisions they are in no order, that of a map, so that no name is always the last.
	slices.SortFunc(others, func(a, b store.ScopeCount) int { return cmp.Compare(b.Allowed+b.Refused, a.Allowed+a.Refused) })
	rest = make(map[admission.Scope]Sum)
	for _, c := range others[store.TopScopes:min(len(others), store.TopScopes+maxRest)] {
		rest[c.Scope] = Sum{c.Allowed, c.Refused, c.Tokens}
	}
	return append(first, others[:store.TopScopes]...), rest
}

// scopeCounts sums up by scope, at every level of each way and by the type of its jobs, and by queue, where the policy has rates watched.
func scopeCounts(taken counted, snapshot *policy.Compiled) []store.ScopeCount {
	sums, queues, watched := make(map[admission.Scope]Sum, len(taken.rest)), map[string]Sum{}, snapshot.Watched()
	maps.Copy(sums, taken.rest)
	for p, s := range taken.paths {
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
	for queue := range taken.told { // Its jobs may have been noted before they are counted.
		queues[queue] = queues[queue].plus(Sum{})
	}
	for queue, s := range queues {
		names := taken.told[queue]
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
