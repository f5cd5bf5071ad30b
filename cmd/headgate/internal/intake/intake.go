package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// Config says how to take jobs in. The zero value works.
type Config struct {
	// Flags fill the fields that a line does not name.
	Flags Spec
	// Strict ends the run at the first bad line.
	Strict bool
	// Verbose keeps the verdict of each job.
	Verbose bool
	// Ahead is how far the clock of Redis is ahead of this machine's.
	Ahead time.Duration
	// Bad is told about each bad line.
	Bad func(line int, err error)
	// Progress is told what came of the jobs so far, after each batch.
	Progress func(Tally)
}

// ErrBadLine is why a strict run ended.
var ErrBadLine = errors.New("bad line")

// run is one run over lines.
type run struct {
	producer *producer.Producer
	config   Config
	tally    Tally
	jobs     []admission.Job // the batch
	numbers  []int           // the lines of jobs
}

// Lines enqueues one job for each line. The error says why it did not reach the end: ctx ended, the input cannot be read,
// there was no answer, or a bad line in a strict run (ErrBadLine). The Tally is of what was done until then.
func Lines(ctx context.Context, p *producer.Producer, from io.Reader, config Config) (Tally, error) {
	r := newRun(p, config)
	err := r.lines(ctx, from)
	r.tally.Interrupted = ctx.Err() != nil
	return r.tally, err
}

// One enqueues one job. The error is nil if there is a verdict.
func One(ctx context.Context, p *producer.Producer, job admission.Job) (Tally, error) {
	r := newRun(p, Config{Verbose: true})
	r.jobs, r.numbers = []admission.Job{job}, []int{0}
	var bad error
	r.config.Bad = func(_ int, err error) { bad = err }
	err := r.flush(ctx)
	r.tally.Interrupted = ctx.Err() != nil
	return r.tally, errors.Join(bad, err)
}

func newRun(p *producer.Producer, config Config) *run {
	if config.Bad == nil {
		config.Bad = func(int, error) {}
	}
	if config.Progress == nil {
		config.Progress = func(Tally) {}
	}
	return &run{producer: p, config: config, tally: Tally{Refused: map[admission.Reason]int{}, details: map[admission.Reason]string{}}}
}

func (r *run) lines(ctx context.Context, from io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := read(ctx, from)
	for {
		line, err := r.next(ctx, lines)
		if err != nil {
			return err
		}
		switch {
		case line.err != nil && !errors.Is(line.err, errTooLong):
			if err := r.flush(ctx); err != nil || errors.Is(line.err, io.EOF) {
				return err
			}
			return fmt.Errorf("read line %d: %w", line.number, line.err)
		case line.err == nil && len(line.text) == 0:
			continue
		}
		if err := r.take(ctx, line); err != nil {
			return err
		}
	}
}

// next returns the next line. While none is there yet, what has come so far is sent.
func (r *run) next(ctx context.Context, lines <-chan numbered) (numbered, error) {
	select {
	case line := <-lines:
		return line, nil
	default:
	}
	if err := r.flush(ctx); err != nil {
		return numbered{}, err
	}
	select {
	case line := <-lines:
		return line, nil
	case <-ctx.Done():
		return numbered{}, context.Cause(ctx)
	}
}

// batchJobs is how many jobs go at once, half as many as may: a call of 64 holds Redis up for a millisecond, and for 5 to 7 in one of some
// thousand where the machine is busy.
const batchJobs = store.MaxBatchJobs / 2

// take puts a line into the batch, and sends that if it is full.
func (r *run) take(ctx context.Context, line numbered) error {
	job, err := r.job(line)
	if err != nil {
		// What stands before it is sent first: a strict run enqueues exactly the lines above the bad one.
		if err := r.strictFlush(ctx); err != nil {
			return err
		}
		return r.bad(line.number, err)
	}
	r.jobs, r.numbers = append(r.jobs, job), append(r.numbers, line.number)
	if len(r.jobs) == batchJobs {
		return r.flush(ctx)
	}
	return nil
}

func (r *run) job(line numbered) (admission.Job, error) {
	if line.err != nil {
		return admission.Job{}, line.err
	}
	spec, err := parse(line.text, r.config.Flags)
	if err != nil {
		return admission.Job{}, err
	}
	return spec.Job(time.Now().Add(r.config.Ahead))
}

// bad takes note of a bad line. In a strict run it is an error.
func (r *run) bad(line int, err error) error {
	r.tally.BadLines++
	r.config.Bad(line, err)
	if r.config.Strict && line > 0 {
		return fmt.Errorf("line %d: %w, and here a strict run ends", line, ErrBadLine)
	}
	return nil
}

func (r *run) strictFlush(ctx context.Context) error {
	if r.config.Strict {
		return r.flush(ctx)
	}
	return nil
}

// flush sends the batch and counts what came of it. The error is that of the first job without an answer. In a strict
// run a job may turn out to be bad here, its class unknown; those behind it in its batch are in then.
func (r *run) flush(ctx context.Context) error {
	if len(r.jobs) == 0 {
		return nil
	}
	results, _ := r.producer.EnqueueBatch(ctx, r.jobs) // Its error is the first of theirs.
	var end error
	for i, result := range results {
		switch {
		case answered(result):
			r.tally.add(result.Verdict)
			if r.config.Verbose {
				r.tally.Verdicts = append(r.tally.Verdicts, verdictOf(r.numbers[i], &r.jobs[i], result.Verdict))
			}
		case invalid(result):
			if err := r.bad(r.numbers[i], result.Err); end == nil {
				end = err
			}
		default:
			if r.tally.Unanswered++; r.tally.Unanswered == 1 {
				end = r.unanswered(r.numbers[i], result.Err)
			}
		}
	}
	r.jobs, r.numbers = r.jobs[:0], r.numbers[:0]
	r.config.Progress(r.tally)
	return end
}

func (r *run) unanswered(line int, err error) error {
	if line == 0 {
		return err
	}
	return fmt.Errorf("no answer from line %d on, and nothing further was sent: %w", line, err)
}
