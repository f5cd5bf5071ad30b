package producer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/estimate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// limits holds the policy by which jobs are sent: a fixed one, or the store's as it was last read. An admit call
// takes its limits from one snapshot.
type limits struct {
	store  store.Deployment
	config Config
	// snapshot is nil until it was first read.
	snapshot atomic.Pointer[policy.Compiled]
	// costs are those that Learn was told.
	costs estimate.Book
}

func newLimits(store store.Deployment, config Config) (*limits, error) {
	l := &limits{store: store, config: config}
	if config.Policy == nil {
		return l, nil
	}
	snapshot, err := config.Policy.Prepare()
	l.snapshot.Store(snapshot)
	return l, err
}

// current returns the snapshot and reads it where there is none.
func (l *limits) current(ctx context.Context) (*policy.Compiled, error) {
	if snapshot := l.snapshot.Load(); snapshot != nil {
		return snapshot, nil
	}
	if err := l.reload(ctx, nil); err != nil {
		return nil, err
	}
	return l.snapshot.Load(), nil
}

// window returns the dedup window.
func (l *limits) window() time.Duration {
	if l.config.DedupWindow > 0 {
		return l.config.DedupWindow
	}
	if snapshot := l.snapshot.Load(); snapshot != nil {
		return snapshot.DedupWindow()
	}
	return policy.DefaultDedupWindow
}

// reload replaces a snapshot that is out of date by what the store holds. Nothing is done if somebody else has.
func (l *limits) reload(ctx context.Context, stale *policy.Compiled) error {
	if l.config.Policy != nil {
		return fmt.Errorf("the limits are fixed at version %d of the policy, the store has another: %w", stale.Version(), store.ErrStale)
	}
	if l.snapshot.Load() != stale {
		return nil
	}
	text, err := l.store.Policy(ctx)
	if err != nil {
		return err
	}
	fresh, err := policy.PrepareStored(text)
	if err != nil {
		return err
	}
	if l.snapshot.CompareAndSwap(stale, fresh) {
		l.config.Logger.Info().Int64("version", fresh.Version()).Msg("policy read")
	}
	return nil
}

// follow waits until the store has another version than the snapshot, and reads it.
func (l *limits) follow(ctx context.Context, reader store.PolicyReader) error {
	snapshot, err := l.current(ctx)
	if err != nil {
		return err
	}
	version, err := reader.Next(ctx, snapshot.Version())
	if err != nil || version == snapshot.Version() {
		return err
	}
	return l.reload(ctx, snapshot)
}

// know is check where nothing has to be read for it; false otherwise.
func (l *limits) know(entries []entry) bool {
	snapshot := l.snapshot.Load()
	return snapshot != nil && checkClasses(snapshot, entries)
}

// check gives each entry whose class is not one of its queue a *headgate.FieldError. A class that is not known is
// looked up in a fresh policy first: it may be new.
func (l *limits) check(ctx context.Context, entries []entry) error {
	snapshot, err := l.current(ctx)
	if err != nil {
		return fmt.Errorf("read classes: %w", err)
	}
	if checkClasses(snapshot, entries) || l.config.Policy != nil {
		return nil
	}
	if err := l.reload(ctx, snapshot); err != nil {
		return fmt.Errorf("read classes: %w", err)
	}
	checkClasses(l.snapshot.Load(), entries)
	return nil
}

// checkClasses reports whether all entries are good.
func checkClasses(snapshot *policy.Compiled, entries []entry) bool {
	good := true
	for i := range entries {
		e := &entries[i]
		e.err = checkClass(snapshot, &e.job)
		if e.err == nil {
			e.err = checkAttempts(snapshot, &e.job)
		}
		good = good && e.err == nil
	}
	return good
}

// checkClass puts the name of the class in the place of a number from 0 to 10.
func checkClass(snapshot *policy.Compiled, job *admission.Job) error {
	if class, ok := snapshot.ClassNamed(job.Queue, job.Priority); ok {
		job.Priority = class
		return nil
	}
	classes := snapshot.ClassesOf(job.Queue)
	names := make([]string, len(classes))
	for i, class := range classes {
		names[i] = string(class.Name)
	}
	value := string(job.Priority)
	if len(value) > admission.MaxNameLength {
		value = value[:admission.MaxNameLength]
	}
	return &admission.FieldError{
		Field: "priority", Value: strconv.Quote(value),
		Allowed: "a class of queue " + job.Queue + ": " + strings.Join(names, ", ") + ", or 0 to 10",
	}
}

// checkAttempts bounds the runs that a job asks for, since they cost it nothing. One that does not say gets no more than that.
func checkAttempts(snapshot *policy.Compiled, job *admission.Job) error {
	most, _ := snapshot.RetriesOf(job.Queue)
	switch {
	case job.MaxAttempts == 0 && most < admission.DefaultMaxAttempts:
		job.MaxAttempts = most
	case job.MaxAttempts > most:
		return &admission.FieldError{
			Field: "max attempts", Value: strconv.Itoa(job.MaxAttempts),
			Allowed: fmt.Sprintf("1 to %d runs, by most_attempts of queue %s in the policy", most, job.Queue),
		}
	}
	return nil
}

// Learn notes what a job has cost, for those of the same tenant, queue and type whose cost is headgate.LearnedCost: 0 to
// headgate.MaxActualCost tokens. A worker's Config.Learn may be this. Nothing is kept beyond this Producer, which knows 10,000 kinds of jobs.
func (p *Producer) Learn(tenant, queue, jobType string, actual admission.Tokens) {
	p.limits.costs.Learn(tenant, queue, jobType, actual)
}

// Guess returns what a job will cost whose cost is headgate.LearnedCost, by what Learn was told: 1 to headgate.MaxCost tokens, not more than burst where
// that is above zero.
func (p *Producer) Guess(tenant, queue, jobType string, burst admission.Tokens) admission.Tokens {
	return p.limits.costs.Guess(tenant, queue, jobType, burst)
}

// Policy returns the policy by which jobs are sent, as it was last read, with what is known of tenants' records: nil before the first job. It is not to
// be changed.
func (p *Producer) Policy() *policy.Compiled { return p.limits.snapshot.Load() }

// guess gives jobs whose cost is to be learned one that no limit on their way refuses for good.
func (l *limits) guess(entries []entry) {
	for i := range entries {
		e := &entries[i]
		if e.job.Cost != admission.LearnedCost || e.err != nil {
			continue
		}
		own, ofType, _ := l.snapshot.Load().WayOfType(e.job.Tenant, e.job.Queue, e.job.Priority, e.job.Type)
		e.learned = true
		e.job.Cost = l.costs.Guess(e.job.Tenant, e.job.Queue, e.job.Type, leastBurst(&own, ofType, len(l.store.Partitions())))
	}
}

// clamp cuts guesses to the limits that a call goes by, as the policy or a tenant's record may be another one since. Callers may read their
// entries meanwhile, so the jobs that are cut are copies.
func (l *limits) clamp(entries []*entry, candidates []store.Candidate) {
	for i, e := range entries {
		if !e.learned {
			continue
		}
		c := &candidates[i]
		e.cut = 0 // By an attempt before, the limits may have been others.
		if least := leastBurst((*policy.Limits)(c.Limits), c.TypeLimit, len(l.store.Partitions())); least > 0 && least < e.job.Cost {
			job := e.job
			job.Cost, e.cut = least, least
			c.Job = &job
		}
	}
}

// leastBurst is LeastBurst of limits and, where there is one, that of a job's type.
func leastBurst(limits *policy.Limits, ofType *admission.Limit, partitions int) admission.Tokens {
	least := limits.LeastBurst(partitions)
	if ofType == nil || least > 0 && least < ofType.Burst {
		return least
	}
	return ofType.Burst
}

// cost returns what the entry's job asks for.
func (e *entry) cost() admission.Tokens { return cmp.Or(e.cut, e.job.Cost) }

// candidates returns the flight's jobs as the store takes them, with the limits of one snapshot. An entry that
// the snapshot does not allow gets its error instead.
func (f *flight) candidates(snapshot *policy.Compiled, r *room) ([]*entry, []store.Candidate) {
	n := 0
	for _, t := range f.tickets {
		n += len(t.entries)
	}
	r.limits = slices.Grow(r.limits[:0], n)[:n]
	entries, candidates, all := r.entries[:0], r.candidates[:0], r.limits
	for _, t := range f.tickets {
		for i := range t.entries {
			e := &t.entries[i]
			class, ok := snapshot.ClassIndex(e.job.Queue, e.job.Priority)
			if !ok {
				e.err = f.outcome(checkClass(snapshot, &e.job))
				continue
			}
			own := &all[len(candidates)]
			var record int64
			var ofType *admission.Limit
			*own, ofType, record = snapshot.WayOfType(e.job.Tenant, e.job.Queue, e.job.Priority, e.job.Type)
			e.err = nil
			entries = append(entries, e)
			from, over, tier := snapshot.PressureFor(e.job.Tenant, e.job.Queue, e.job.Priority)
			candidates = append(candidates, store.Candidate{Job: &e.job, Class: class, Limits: own, TypeLimit: ofType, ShedFrom: from, ShedOverFrom: over, Tier: tier, Usage: snapshot.UsageTenants(), Doomed: snapshot.DoomedPercent(e.job.Queue), Record: record})
		}
	}
	r.entries, r.candidates = entries, candidates
	return entries, candidates
}

// room is what one call's candidates take. It is used again by others.
type room struct {
	entries    []*entry
	candidates []store.Candidate
	limits     [][admission.Levels]admission.Limit
}

var rooms = sync.Pool{New: func() any { return &room{} }}

// recycle gives back a room of which nothing is needed any more.
func (r *room) recycle() {
	clear(r.entries)
	clear(r.candidates)
	clear(r.limits)
	rooms.Put(r)
}
