package stage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/ledger"
	"github.com/headgate/headgate/producer"
)

// idMark begins the ids of a run's jobs; their number in the ledger follows.
const idMark = "j"

func numberOf(id string) int {
	number, err := strconv.Atoi(strings.TrimPrefix(id, idMark))
	if err != nil {
		return -1
	}
	return number
}

// Bounds of the patience with a Redis that does not answer: the ids of jobs in doubt are good for the dedup window.
const (
	patience     = 15 * time.Second
	lastPatience = 2 * time.Second // when the run was interrupted
	retryEvery   = 200 * time.Millisecond
)

// Enqueue asks for jobs to enter and writes the verdicts down. It gives them the run's queue and their ids. A
// refusal is a verdict like another. Where Redis does not answer it asks again for some time, with the same ids, so that
// nothing enters twice; the error then says that some jobs have no verdict. What has begun when ctx ends is brought to
// its verdicts, or the books would not balance.
func (s *Stage) Enqueue(ctx context.Context, jobs []admission.Job) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.open(jobs)
	until := time.Now().Add(patience)
	going := context.WithoutCancel(ctx)
	for len(jobs) > 0 {
		results, err := s.producer.EnqueueBatch(going, jobs)
		var again []admission.Job
		for i := range results {
			if s.settle(&jobs[i], results[i]) {
				continue
			}
			if !errors.Is(results[i].Err, admission.ErrUnavailable) && !errors.Is(results[i].Err, admission.ErrOutcomeUnknown) {
				return results[i].Err
			}
			again = append(again, jobs[i])
		}
		if len(again) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			until = earlier(until, time.Now().Add(lastPatience))
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d jobs have no verdict: %w", len(again), err)
		}
		sleep(going, retryEvery)
		jobs = again
	}
	return nil
}

// open gives each job its page in the ledger, its queue and its id.
func (s *Stage) open(jobs []admission.Job) {
	now := time.Now()
	for i := range jobs {
		j := &jobs[i]
		j.Queue = s.config.Queue
		number := s.ledger.Add(ledger.Job{Tenant: j.Tenant, Class: j.Priority, Downstream: j.Downstream, Cost: j.Cost}, now)
		j.ID = idMark + strconv.Itoa(number)
	}
}

// settle writes a verdict down, and reports false where there is none. Nobody else has ids under the prefix of this run
// and each is given once, so a duplicate is the job itself, sent again after a lost answer.
func (s *Stage) settle(j *admission.Job, r producer.Result) bool {
	if r.Err != nil && !errors.Is(r.Err, admission.ErrRefused) {
		return false
	}
	v := r.Verdict
	if v.Decision == admission.Duplicate {
		v.Decision = admission.Admitted
	}
	s.ledger.Decide(numberOf(j.ID), v)
	return true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
