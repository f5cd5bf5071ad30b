package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Suspend refuses admission under a name, that of the gate of a queue, a tenant or a tenant in a queue, for a duration from 1 ms;
// zero means until Resume. Jobs that have entered are not touched. Producers are told the reason.
func (s *Partition) Suspend(ctx context.Context, name store.GateName, duration time.Duration, by store.Intervention) error {
	_, err := s.suspend(ctx, name, store.AuditSuspend, micros(duration), false, by)
	return err
}

// Drain suspends a queue for a duration, and leaves a suspension that ends later as it is. until is when the one in force ends,
// zero for never. By calls with the same Act whoever waits until the queue is empty holds it for as long as it takes.
func (s *Partition) Drain(ctx context.Context, queue string, duration time.Duration, by store.Intervention) (until time.Time, err error) {
	if by.Reason == "" {
		by.Reason = store.DrainReason
	}
	return s.suspend(ctx, store.QueueGate(queue), store.AuditDrain, micros(duration), true, by)
}

// Resume ends what Suspend began; was is false where nothing was suspended.
func (s *Partition) Resume(ctx context.Context, name store.GateName, by store.Intervention) (was bool, err error) {
	until, err := s.suspend(ctx, name, store.AuditResume, "", false, by)
	return err == nil && !until.IsZero(), err
}

// suspend is what the script does in all partitions that a name is about. Of a resume, until is not zero where one was suspended.
func (s *Partition) suspend(ctx context.Context, name store.GateName, action, duration string, keep bool, by store.Intervention) (until time.Time, err error) {
	if err := by.Validate(); err != nil {
		return time.Time{}, err
	}
	kept := ""
	if keep {
		kept = "1"
	}
	reply, err := s.runFor(ctx, 2, "suspend", s.now, string(name), duration, kept, interventionText(by, action))
	if err != nil {
		return time.Time{}, err
	}
	until, err = parseMicros(reply[1])
	if reply[0] == "resumed" {
		until = time.Now() // any but zero
	}
	return until, err
}

// Cancel ends a job wherever it waits. One that runs is marked: running is true, its worker ends its handler's ctx at
// the next heartbeat, and the job leaves as cancelled unless it completes first. A dead letter is headgate.ErrEnded too:
// Purge ends it. more means that work is left for Promote. The reason is told to the handler. It stands in the audit where it has an
// author: without one it is the application that cancels its own job.
func (s *Partition) Cancel(ctx context.Context, key admission.Key, by store.Intervention) (running, more bool, err error) {
	by.Own = by.Own || by.Author == ""
	return s.cancel(ctx, key, store.AuditCancel, key.String(), by)
}

// cancel is Cancel as the audit is to name it.
func (s *Partition) cancel(ctx context.Context, key admission.Key, action, name string, by store.Intervention) (running, more bool, err error) {
	if err := by.Validate(); err != nil {
		return false, false, err
	}
	reply, err := s.run(ctx, "cancel", s.now, store.EncodeKey(key), interventionText(by, action), name)
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

// PurgeQueue cancels a page of the live jobs of a queue, from a cursor on that is empty at first. Calls with the same Act are one
// entry of the audit. Work that it leaves is left to the schedulers.
func (s *Partition) PurgeQueue(ctx context.Context, queue, cursor string, by store.Intervention) (store.PurgedPage, error) {
	return purgeQueue(ctx, s, func(string) *Partition { return s }, queue, cursor, by)
}

// purgeQueue cancels a page of what of lists, each job in the partition of its tenant.
func purgeQueue(ctx context.Context, of store.Looking, home func(tenant string) *Partition, queue, cursor string, by store.Intervention) (store.PurgedPage, error) {
	by = by.Named()
	page, err := of.List(ctx, store.ListQuery{Queue: queue, Limit: store.PurgePage, Cursor: cursor})
	if err != nil {
		return store.PurgedPage{}, err
	}
	done := store.PurgedPage{Cursor: page.Cursor}
	for _, job := range page.Jobs {
		running, _, err := home(job.Key.Tenant).cancel(ctx, job.Key, store.AuditPurgeQueue, string(store.QueueGate(queue)), by)
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
func (s *Partition) Purge(ctx context.Context, keys []admission.Key, by store.Intervention) (purged []bool, err error) {
	if err := by.Validate(); err != nil {
		return nil, err
	}
	by = by.Named()
	args := make([]any, 0, 2+len(keys))
	args = append(args, s.now, interventionText(by, store.AuditPurge))
	for _, k := range keys {
		args = append(args, store.EncodeKey(k))
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
func (s *Partition) Started(ctx context.Context, pool, worker, token string, key admission.Key) error {
	reply, err := s.run(ctx, "start", pool, worker, token, store.EncodeKey(key))
	if err != nil {
		return err
	}
	if reply[0] == "lost" {
		return fmt.Errorf("start %s: %w", key, admission.ErrLeaseLost)
	}
	if reply[0] == "beside" {
		return fmt.Errorf("start %s: %w", key, store.ErrBeside)
	}
	return nil
}
