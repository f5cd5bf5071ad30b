package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Cancel ends a job wherever it waits. One that runs is marked: running is true, its worker ends its handler's ctx at
// the next heartbeat, and the job leaves as cancelled unless it completes first. A dead letter is headgate.ErrEnded too:
// Purge ends it. more means that work is left for Promote. The reason is told to the handler. It stands in the audit where it has an
// author: without one it is the application that cancels its own job.
func (s *Jobs) Cancel(ctx context.Context, key admission.Key, by store.Intervention) (running, more bool, err error) {
	by.Own = by.Own || by.Author == ""
	return s.CancelAs(ctx, key, store.AuditCancel, key.String(), by)
}

// CancelAs is Cancel as the audit is to name it.
func (s *Jobs) CancelAs(ctx context.Context, key admission.Key, action, name string, by store.Intervention) (running, more bool, err error) {
	if err := by.Validate(); err != nil {
		return false, false, err
	}
	reply, err := s.conn.Run(ctx, "cancel", s.conn.Now, store.EncodeKey(key), codec.InterventionText(by, action), name)
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
	case "unplaced":
		return false, false, fmt.Errorf("cancel %s: %w", key, store.ErrUnplaced)
	}
	return false, false, fmt.Errorf("cancel %s: %w", key, admission.ErrUnknownJob)
}

// Purge ends up to MaxBatchJobs dead letters for good, and tells of each whether it was one. Calls with the same Act are one entry of
// the audit for each queue.
func (s *Jobs) Purge(ctx context.Context, keys []admission.Key, by store.Intervention) (purged []bool, err error) {
	if err := by.Validate(); err != nil {
		return nil, err
	}
	by = by.Named()
	args := make([]any, 0, 2+len(keys))
	args = append(args, s.conn.Now, codec.InterventionText(by, store.AuditPurge))
	for _, k := range keys {
		args = append(args, store.EncodeKey(k))
	}
	reply, err := s.conn.RunFor(ctx, 1+len(keys), "purge", args...)
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
func (s *Jobs) Started(ctx context.Context, pool, worker, token string, key admission.Key) error {
	reply, err := s.conn.Run(ctx, "start", pool, worker, token, store.EncodeKey(key))
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

// ClearTenant cancels jobs of a tenant that wait in a queue, those kept aside too, up to 64 a call: more means that others may wait.
// Jobs that wait for a time, run, or are in a worker's stream, and dead letters, are not touched. Calls with the same Act are one
// entry of the audit.
func (s *Jobs) ClearTenant(ctx context.Context, tenant, queue string, by store.Intervention) (cancelled int, more bool, err error) {
	err = errors.Join(admission.ValidateTenant(tenant), admission.ValidateName("queue", queue, true), by.Validate())
	if err != nil {
		return 0, false, err
	}
	reply, err := s.conn.RunFor(ctx, 2, "clear", s.conn.Now, tenant, queue, codec.InterventionText(by, store.AuditClear))
	if err != nil {
		return 0, false, err
	}
	if cancelled, err = strconv.Atoi(reply[1]); err != nil {
		return 0, false, fmt.Errorf("clear %s: %w", store.TenantQueueGate(tenant, queue), err)
	}
	return cancelled, reply[0] == "more", nil
}
