package producer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// RedriveOptions are those of the vocabulary.
type RedriveOptions = admission.RedriveOptions

// RedriveResult is that of the vocabulary.
type RedriveResult = admission.RedriveResult

// Redrive brings up to store.MaxBatchJobs dead letters back through admission: each is charged like a new job, refused
// like one, and keeps its id, payload and history; its attempts count from zero. The results are in the order of the
// keys. The error is nil if and only if every one of them was admitted; bad keys are *headgate.FieldErrors, and then
// nothing is sent.
func (p *Producer) Redrive(ctx context.Context, keys ...admission.Key) ([]RedriveResult, error) {
	return p.RedriveWith(ctx, RedriveOptions{}, keys...)
}

// RedriveWith is Redrive with options.
func (p *Producer) RedriveWith(ctx context.Context, options RedriveOptions, keys ...admission.Key) ([]RedriveResult, error) {
	by := store.Intervention{Author: options.Author, Reason: options.Reason, Act: options.Act, Own: options.Own}
	if err := errors.Join(checkKeys(keys), by.Validate()); err != nil {
		return nil, err
	}
	if options.Act == "" {
		options.Act = rand.Text()
	}
	ctx, cancel := p.bound(ctx)
	defer cancel()
	letters, err := p.store.Letters(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("redrive: %w", err)
	}
	if options.DropDeadline {
		if err := p.dropPassed(ctx, letters); err != nil {
			return nil, fmt.Errorf("redrive: %w", err)
		}
	}
	results := make([]RedriveResult, len(keys))
	for i, key := range keys {
		results[i] = RedriveResult{Key: key, Verdict: admission.Verdict{ID: key.ID}}
	}
	p.redriveAll(ctx, options, letters, results)
	return results, redriveSummary(results)
}

// redriveAll calls redrive for each partition's letters, side by side.
func (p *Producer) redriveAll(ctx context.Context, options RedriveOptions, letters []store.Letter, results []RedriveResult) {
	if p.parts == nil {
		p.redrive(ctx, options, letters, results)
		return
	}
	places := make(map[*Producer][]int)
	for i := range results {
		part := p.of(results[i].Key.Tenant)
		places[part] = append(places[part], i)
	}
	var running sync.WaitGroup
	for part, at := range places {
		running.Go(func() {
			own, answers := make([]store.Letter, len(at)), make([]RedriveResult, len(at))
			for k, i := range at {
				own[k], answers[k] = letters[i], results[i]
			}
			part.redrive(ctx, options, own, answers)
			for k, i := range at {
				results[i] = answers[k]
			}
		})
	}
	running.Wait()
}

// checkKeys reports every bad key at once.
func checkKeys(keys []admission.Key) error {
	if len(keys) == 0 || len(keys) > store.MaxBatchJobs {
		return &admission.FieldError{Field: "keys", Value: strconv.Itoa(len(keys)), Allowed: fmt.Sprintf("1 to %d dead letters a call", store.MaxBatchJobs)}
	}
	bad := make([]error, 0, 2*len(keys))
	for _, key := range keys {
		bad = append(bad, admission.ValidateTenant(key.Tenant), admission.ValidateName("id", key.ID, false))
	}
	return errors.Join(bad...)
}

// dropPassed takes away the deadlines that have passed by the clock of Redis.
func (p *Producer) dropPassed(ctx context.Context, letters []store.Letter) error {
	now, err := p.part.Time(ctx)
	if err != nil {
		return err
	}
	for i := range letters {
		if job := &letters[i].Record.Job; job.Deadline.Before(now) {
			job.Deadline = time.Time{}
		}
	}
	return nil
}

// redrive makes one admit call, and the same again while no answer comes: a letter that the first one took has another
// Seq, and is a duplicate then.
func (p *Producer) redrive(ctx context.Context, options RedriveOptions, letters []store.Letter, results []RedriveResult) {
	failures := 0 // calls that may have been carried out, and what came after them
	for {
		places, verdicts, err := p.tryRedrive(ctx, options, letters, results)
		if err != nil && (failures > 0 || store.InDoubt(err)) {
			if failures++; rest(ctx, pauseOf(failures)) {
				continue
			}
			err = unknown(err)
		}
		for k, i := range places {
			switch {
			case err != nil:
				results[i].Err = fmt.Errorf("redrive job %s: %w", results[i].Key, err)
			case failures > 0 && verdicts[k].Reason == admission.ReasonGone:
				// It was a letter, and has ended by now: after this call, if nobody has purged it in the same moment.
				results[i].Verdict.Decision = admission.Duplicate
			default:
				results[i].Verdict, results[i].Err = verdicts[k], verdicts[k].Err()
			}
			p.decided(&letters[i].Record.Job, results[i].Verdict, results[i].Err)
		}
		if !options.WithoutLimits {
			p.noteRedriven(ctx, letters, results, places)
		}
		return
	}
}

// noteRedriven counts what limits have decided of letters.
func (p *Producer) noteRedriven(ctx context.Context, letters []store.Letter, results []RedriveResult, places []int) {
	entries := make([]*entry, len(places))
	for k, i := range places {
		entries[k] = &entry{job: letters[i].Record.Job, verdict: results[i].Verdict}
	}
	p.note(ctx, entries)
}

// tryRedrive returns the places of what it has asked for and the verdicts, all places if it could not ask. Where the
// policy has changed since it was read, nothing was done: it is read anew and the call made once more.
func (p *Producer) tryRedrive(ctx context.Context, options RedriveOptions, letters []store.Letter, results []RedriveResult) (places []int, verdicts []admission.Verdict, err error) {
	for stale := 0; ; stale++ {
		snapshot, err := p.limits.current(ctx)
		if err != nil {
			return all(results), nil, err
		}
		candidates, places := redriveCandidates(snapshot, options, letters, results)
		if len(candidates) == 0 {
			return nil, nil, nil
		}
		verdicts, err := p.part.Admit(ctx, snapshot.Version(), candidates)
		if !errors.Is(err, store.ErrStale) || stale == maxStale {
			return places, verdicts, err
		}
		if err := p.refresh(ctx, snapshot, err); err != nil {
			return places, nil, err
		}
	}
}

func all(results []RedriveResult) []int {
	places := make([]int, len(results))
	for i := range places {
		places[i] = i
	}
	return places
}

// redriveCandidates returns the letters as admission takes them and their places among the results. What cannot run
// again gets its error there.
func redriveCandidates(snapshot *policy.Compiled, options RedriveOptions, letters []store.Letter, results []RedriveResult) (candidates []store.Candidate, places []int) {
	for i := range letters {
		letter := &letters[i]
		job := &letter.Record.Job
		classes := snapshot.ClassesOf(job.Queue)
		// The policy may have fewer classes by now.
		class := min(letter.Record.Class, len(classes)-1)
		job.Priority = classes[class].Name
		limits, record := new([admission.Levels]admission.Limit), snapshot.RecordVersion(job.Tenant)
		for level := range limits {
			limits[level].Disabled = true
		}
		var ofType *admission.Limit
		if !options.WithoutLimits {
			*limits, ofType, record = snapshot.WayOfType(job.Tenant, job.Queue, job.Priority, job.Type)
		}
		candidate, err := letter.Redrive(class, limits)
		candidate.Record = record
		if candidate.Free = options.WithoutLimits; !candidate.Free {
			candidate.ShedFrom, candidate.ShedOverFrom, candidate.Tier = snapshot.PressureFor(job.Tenant, job.Queue, job.Priority)
			candidate.TypeLimit = ofType
			candidate.Usage = snapshot.UsageTenants()
			candidate.Doomed = snapshot.DoomedPercent(job.Queue)
		}
		candidate.By = store.Intervention{Author: options.Author, Reason: options.Reason, Act: options.Act, Own: options.Own}
		if err != nil {
			results[i].Err = fmt.Errorf("redrive job %s: %w", results[i].Key, err)
			continue
		}
		candidates, places = append(candidates, candidate), append(places, i)
	}
	return candidates, places
}

// redriveSummary counts the letters that stay dead.
func redriveSummary(results []RedriveResult) error {
	bad := 0
	var first error
	for _, result := range results {
		if result.Err != nil {
			if bad++; first == nil {
				first = result.Err
			}
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d dead letters were not redriven, the first of them: %w", bad, len(results), first)
}
