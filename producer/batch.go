package producer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Result is what became of one job of a batch.
type Result = admission.EnqueueResult

// EnqueueBatch asks for many jobs to enter and returns one Result for each, in their order. The error is nil if and
// only if every job was admitted or is a duplicate. Jobs are decided on one by one: a refused one does not
// keep the others out. They travel in the order given, up to store.MaxBatchJobs and store.MaxBatchBytes a call; once
// a call gets no answer, nothing further is sent. Where the deployment has several partitions, this is so for the jobs of
// each, and those of all travel side by side.
func (p *Producer) EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]Result, error) {
	results := make([]Result, len(jobs))
	if p.parts == nil {
		p.enqueueInOrder(ctx, jobs, nil, results)
		return results, summary(results)
	}
	places := make([][]int, len(p.parts))
	for i := range jobs {
		at := p.store.PartitionOf(jobs[i].Tenant)
		places[at] = append(places[at], i)
	}
	var running sync.WaitGroup
	for at, some := range places {
		if len(some) > 0 {
			running.Go(func() { p.parts[at].enqueueInOrder(ctx, jobs, some, results) })
		}
	}
	running.Wait()
	return results, summary(results)
}

// shedOfBatch sheds a job of a batch without a call, where that is so.
func (p *Producer) shedOfBatch(ctx context.Context, job *admission.Job, result *Result) bool {
	verdict, ok := p.shed(job)
	if !ok {
		return false
	}
	*result = Result{Verdict: verdict, Err: verdict.Err()}
	if ended := p.enqueuing(ctx, job); ended != nil {
		ended(verdict, result.Err)
	}
	p.decided(job, verdict, result.Err)
	return true
}

// enqueueInOrder sends the jobs at some places, all of one partition; nil is all.
func (p *Producer) enqueueInOrder(ctx context.Context, jobs []admission.Job, some []int, results []Result) {
	n := len(jobs)
	if some != nil {
		n = len(some)
	}
	var part []entry
	at := make([]int, 0, min(n, store.MaxBatchJobs)) // the place of each entry of part among the jobs
	bytes := 0
	var ended error
	send := func() {
		ended = p.sendPart(ctx, part, at, results, ended)
		part, at, bytes = nil, at[:0], 0 // A flight may outlive the caller, so it keeps its entries.
	}
	for k := range n {
		i := k
		if some != nil {
			i = some[k]
		}
		job := jobs[i]
		fresh := job.ID == ""
		if err := p.prepare(&job); err != nil {
			results[i] = Result{Verdict: admission.Verdict{ID: job.ID}, Err: err}
			continue
		}
		if fresh && p.shedOfBatch(ctx, &job, &results[i]) {
			continue
		}
		if len(part) == store.MaxBatchJobs || len(part) > 0 && bytes+len(job.Payload) > store.MaxBatchBytes {
			send()
		}
		if part == nil {
			part = make([]entry, 0, cap(at))
		}
		ended := p.enqueuing(ctx, &job)
		part, at, bytes = append(part, entry{job: job, ended: ended}), append(at, i), bytes+len(job.Payload)
	}
	if len(part) > 0 {
		send()
	}
}

// sendPart sends the entries of one call, unless an earlier one got no answer, and returns the reason to end.
func (p *Producer) sendPart(ctx context.Context, part []entry, at []int, results []Result, ended error) error {
	if ended != nil {
		for i := range part {
			err := fmt.Errorf("%w: nothing was sent: the batch ended at an earlier job", admission.ErrUnavailable)
			results[at[i]] = Result{Verdict: admission.Verdict{ID: part[i].job.ID}, Err: err}
			p.told(&part[i], results[at[i]])
		}
		return ended
	}
	end := time.Now().Add(p.config.Timeout)
	err := p.check(ctx, end, part)
	if err == nil {
		good := 0
		for i := range part {
			if part[i].err != nil {
				results[at[i]].Verdict, results[at[i]].Err = part[i].result()
				p.told(&part[i], results[at[i]])
				continue
			}
			part[good], at[good] = part[i], at[i]
			good++
		}
		if part, at = part[:good], at[:good]; good == 0 {
			return nil
		}
		err = p.travel(ctx, end, newTicket(ctx, end, part))
	}
	for i := range part {
		e := &part[i]
		if err != nil {
			results[at[i]] = Result{Verdict: admission.Verdict{ID: e.job.ID}, Err: fmt.Errorf("enqueue job %s: %w", e.job.ID, err)}
		} else {
			results[at[i]].Verdict, results[at[i]].Err = e.result()
		}
		p.told(e, results[at[i]])
	}
	return err
}

// told tells the observer what the caller is told of a job.
func (p *Producer) told(e *entry, r Result) {
	p.decided(&e.job, r.Verdict, r.Err)
	if e.ended != nil {
		e.ended(r.Verdict, r.Err)
	}
}

// summary counts the jobs that did not enter.
func summary(results []Result) error {
	bad, first := 0, 0
	for i, result := range slices.Backward(results) {
		if result.Err != nil {
			bad++
			first = i
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d jobs did not enter, the first of them jobs[%d]: %w", bad, len(results), first, results[first].Err)
}
