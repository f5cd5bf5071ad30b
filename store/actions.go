package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
)

// The actions of holds and of what ends jobs, as the audit names them.
const (
	AuditPause      = "pause"
	AuditUnpause    = "unpause"
	AuditGate       = "gate"
	AuditSuspend    = "suspend"
	AuditResume     = "resume"
	AuditDrain      = "drain"
	AuditCancel     = "cancel"
	AuditPurgeQueue = "purge_queue"
	AuditPurge      = "purge"
	AuditRedrive    = "redrive"
	// AuditRedriveFree is a redrive that no limit checked or charged.
	AuditRedriveFree = "redrive_without_limits"
	AuditResetBucket = "reset_bucket"
)

// DrainReason is what producers are told while a queue is drained.
const DrainReason = "the queue is being drained"

// Suspend refuses admission under a name, that of the gate of a queue, a tenant or a tenant in a queue, for a duration from 1 ms;
// zero means until Resume. Jobs that have entered are not touched. Producers are told the reason.
func (s *Store) Suspend(ctx context.Context, name GateName, duration time.Duration, by Intervention) error {
	_, err := s.suspend(ctx, name, AuditSuspend, micros(duration), false, by)
	return err
}

// Drain suspends a queue for a duration, and leaves a suspension that ends later as it is. until is when the one in force ends,
// zero for never. By calls with the same Act whoever waits until the queue is empty holds it for as long as it takes.
func (s *Store) Drain(ctx context.Context, queue string, duration time.Duration, by Intervention) (until time.Time, err error) {
	if by.Reason == "" {
		by.Reason = DrainReason
	}
	return s.suspend(ctx, QueueGate(queue), AuditDrain, micros(duration), true, by)
}

// Resume ends what Suspend began; was is false where nothing was suspended.
func (s *Store) Resume(ctx context.Context, name GateName, by Intervention) (was bool, err error) {
	until, err := s.suspend(ctx, name, AuditResume, "", false, by)
	return err == nil && !until.IsZero(), err
}

// suspend is what the script does in all partitions that a name is about. Of a resume, until is not zero where one was suspended.
func (s *Store) suspend(ctx context.Context, name GateName, action, duration string, keep bool, by Intervention) (until time.Time, err error) {
	if err := by.Validate(); err != nil {
		return time.Time{}, err
	}
	var mu sync.Mutex
	err = s.under(name, by, func(part *Store, by Intervention) error {
		kept := ""
		if keep {
			kept = "1"
		}
		reply, err := part.runFor(ctx, 2, "suspend", part.now, string(name), duration, kept, by.text(action))
		if err != nil {
			return err
		}
		end, err := parseMicros(reply[1])
		if reply[0] == "resumed" {
			end = time.Now() // any but zero
		}
		mu.Lock()
		defer mu.Unlock()
		if end.After(until) {
			until = end
		}
		return err
	})
	return until, err
}

// Cancel ends a job wherever it waits. One that runs is marked: running is true, its worker ends its handler's ctx at
// the next heartbeat, and the job leaves as cancelled unless it completes first. A dead letter is headgate.ErrEnded too:
// Purge ends it. more means that work is left for Promote. The reason is told to the handler. It stands in the audit where it has an
// author: without one it is the application that cancels its own job.
func (s *Store) Cancel(ctx context.Context, key admission.Key, by Intervention) (running, more bool, err error) {
	by.Own = by.Own || by.Author == ""
	return s.cancel(ctx, key, AuditCancel, key.String(), by)
}

// cancel is Cancel as the audit is to name it.
func (s *Store) cancel(ctx context.Context, key admission.Key, action, name string, by Intervention) (running, more bool, err error) {
	if err := by.Validate(); err != nil {
		return false, false, err
	}
	s = s.of(key.Tenant)
	reply, err := s.run(ctx, "cancel", s.now, encodeKey(key), by.text(action), name)
	if err != nil {
		return false, false, err
	}
	switch reply[0] {
	case "cancelling":
		return true, false, nil
	case "cancelled":
		return false, false, nil
	case "more":
		return false, true, nil
	case "dead":
		return false, false, fmt.Errorf("cancel %s: %w: it is a dead letter", key, admission.ErrEnded)
	case "ended":
		return false, false, fmt.Errorf("cancel %s: %w", key, admission.ErrEnded)
	}
	return false, false, fmt.Errorf("cancel %s: %w", key, admission.ErrUnknownJob)
}

// PurgedPage is what PurgeQueue did.
type PurgedPage struct {
	// Cancelled jobs have left, Cancelling ones run until their workers hear of it.
	Cancelled, Cancelling int
	// Cursor goes on; empty at the end.
	Cursor string
}

// purgePage is how many jobs a call of PurgeQueue cancels, each with a round trip of its own.
const purgePage = 500

// PurgeQueue cancels a page of the live jobs of a queue, from a cursor on that is empty at first. Calls with the same Act are one
// entry of the audit. Work that it leaves is left to the schedulers.
func (s *Store) PurgeQueue(ctx context.Context, queue, cursor string, by Intervention) (PurgedPage, error) {
	by = by.named()
	page, err := s.List(ctx, ListQuery{Queue: queue, Limit: purgePage, Cursor: cursor})
	if err != nil {
		return PurgedPage{}, err
	}
	done := PurgedPage{Cursor: page.Cursor}
	for _, job := range page.Jobs {
		running, _, err := s.cancel(ctx, job.Key, AuditPurgeQueue, string(QueueGate(queue)), by)
		switch {
		case errors.Is(err, admission.ErrUnknownJob), errors.Is(err, admission.ErrEnded): // It has left by itself, or is a dead letter.
		case err != nil:
			return done, err
		case running:
			done.Cancelling++
		default:
			done.Cancelled++
		}
	}
	return done, nil
}

// Purge ends up to MaxBatchJobs dead letters for good, and tells of each whether it was one. Calls with the same Act are one entry of
// the audit for each queue.
func (s *Store) Purge(ctx context.Context, keys []admission.Key, by Intervention) (purged []bool, err error) {
	if err := by.Validate(); err != nil {
		return nil, err
	}
	by = by.named()
	if s.all != nil {
		return spread(s, keys, tenantOf, func(part *Store, some []admission.Key) ([]bool, error) { return part.Purge(ctx, some, by) })
	}
	args := make([]any, 0, 2+len(keys))
	args = append(args, s.now, by.text(AuditPurge))
	for _, k := range keys {
		args = append(args, encodeKey(k))
	}
	reply, err := s.runFor(ctx, 1+len(keys), "purge", args...)
	if err != nil {
		return nil, err
	}
	purged = make([]bool, len(keys))
	for i := range keys {
		purged[i] = reply[i+1] == "purged"
	}
	return purged, nil
}

// Started notes that a worker's handler begins a suspect (Record.Suspect): if that worker is lost too, the delivery
// counts (Record.Lost), or those that it had begun together are told apart. headgate.ErrLeaseLost means that the job is no longer
// the worker's, ErrBeside that it is to run later.
func (s *Store) Started(ctx context.Context, pool, worker, token string, key admission.Key) error {
	reply, err := s.run(ctx, "start", pool, worker, token, encodeKey(key))
	if err != nil {
		return err
	}
	if reply[0] == "lost" {
		return fmt.Errorf("start %s: %w", key, admission.ErrLeaseLost)
	}
	if reply[0] == "beside" {
		return fmt.Errorf("start %s: %w", key, ErrBeside)
	}
	return nil
}

// ErrBeside means that the worker runs a suspect (Record.Suspect) beside which another is not to run, so that its next death tells which
// of them it was.
var ErrBeside = errors.New("not beside the suspect that runs")
