package store

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
)

// Outcome is what a worker makes of a job that it holds.
type Outcome string

// The outcomes.
const (
	// Complete ends the job.
	Complete Outcome = "complete"
	// Retry burns an attempt; the job comes back after Delay, or is a dead letter out of attempts.
	Retry Outcome = "retry"
	// Kill makes the job a dead letter for Reason.
	Kill Outcome = "dead"
	// Release hands the job back unharmed, after Delay or at once.
	Release Outcome = "release"
	// Expire ends the job because its deadline passed before it started.
	Expire Outcome = "expire"
)

// Finish says how one held job ends. That of Lease.Finish is cheaper than one made of the token and the key alone.
type Finish struct {
	Token   string
	Key     admission.Key
	Outcome Outcome
	// Delay is for Retry and Release.
	Delay time.Duration
	// Reason is for Kill, Text is what went wrong. At most 1 KiB of Text is kept.
	Reason string
	Text   string
	// Ran is how long the handler ran.
	Ran time.Duration
	// Result of a completed job is kept for KeepResult, if that is above zero.
	Result     []byte
	KeepResult time.Duration

	// plain means that the job owns nothing but its record, and no unit of a breaker. The others are then the job's and the
	// lease's. Where there are caps, a job without its queue costs a reading of its record, and one that does not name them
	// as uncounted a look for its own.
	plain                        bool
	queue, downstream, uncounted string
}

// Ended is what became of a job after Finish.
type Ended string

// The ends.
const (
	EndedDone     Ended = "done"
	EndedRetried  Ended = "retried"
	EndedDead     Ended = "dead"
	EndedExpired  Ended = "expired"
	EndedReleased Ended = "released"
	// EndedCancelled means that the job had been cancelled, and is gone whatever its handler says.
	EndedCancelled Ended = "cancelled"
	// EndedLost means that the lease was no longer the caller's: nothing was changed.
	EndedLost Ended = "lost"
)

const maxErrorText = 1 << 10

// Finish ends up to MaxBatchJobs held jobs of one pool in one round trip. more means that work is left for
// Promote. Sent again after a lost reply it answers EndedLost for what the first call ended.
func (s *Store) Finish(ctx context.Context, pool, worker string, jobs []Finish) (ends []Ended, more bool, err error) {
	reply, err := s.run(ctx, "finish", s.finishArgs(pool, worker, jobs)...)
	if err != nil {
		return nil, false, err
	}
	if len(reply) != len(jobs)+1 {
		return nil, false, fmt.Errorf("finish %d jobs: reply has %d words", len(jobs), len(reply)-1)
	}
	ends = make([]Ended, len(jobs))
	for i := range ends {
		ends[i] = Ended(reply[i+1])
	}
	return ends, reply[0] == "more", nil
}

// finishArgs hands over texts as appendPaths does.
func (s *Store) finishArgs(pool, worker string, jobs []Finish) []any {
	args := append(make([]any, 0, 3+7*len(jobs)), s.now, pool, worker)
	keys := make([]string, len(jobs))
	for i := range jobs {
		f := &jobs[i]
		keys[i] = encodeKey(f.Key)
		args = append(args, &f.Token, &keys[i])
		switch {
		case f.Outcome == Complete && f.plain && f.KeepResult <= 0:
			args = append(args, string(Complete), &f.uncounted, &f.downstream, &f.queue)
		case f.Outcome == Complete:
			args = append(args, "complete_full", f.KeepResult.Microseconds(), &f.Reason, f.Result)
		default:
			args = append(args, (*string)(&f.Outcome), f.Delay.Microseconds(), &f.Reason, f.Text[:min(len(f.Text), maxErrorText)])
		}
		args = append(args, f.Ran.Microseconds())
	}
	return args
}
