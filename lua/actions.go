package lua

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// Suspend refuses admission under a name, that of the gate of a queue, a tenant or a tenant in a queue, for a duration;
// zero means until Resume. Jobs that have entered are not touched.
func (s *Store) Suspend(ctx context.Context, name GateName, duration time.Duration, reason string) error {
	return s.under(name, func(part *Store) error {
		_, err := part.run(ctx, "suspend", part.now, string(name), micros(duration), reason[:min(len(reason), maxErrorText)])
		return err
	})
}

// Resume ends what Suspend began.
func (s *Store) Resume(ctx context.Context, name GateName) error {
	return s.under(name, func(part *Store) error {
		_, err := part.run(ctx, "suspend", part.now, string(name), "", "")
		return err
	})
}

// Cancel ends a job wherever it waits. One that runs is marked: running is true, its worker ends its handler's ctx at
// the next heartbeat, and the job leaves as cancelled unless it completes first. A dead letter is headgate.ErrEnded too:
// Purge ends it. more means that work is left for Promote.
func (s *Store) Cancel(ctx context.Context, key headgate.Key, reason string) (running, more bool, err error) {
	s = s.of(key.Tenant)
	reply, err := s.run(ctx, "cancel", s.now, encodeKey(key), reason[:min(len(reason), maxErrorText)])
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
		return false, false, fmt.Errorf("cancel %s: %w: it is a dead letter", key, headgate.ErrEnded)
	case "ended":
		return false, false, fmt.Errorf("cancel %s: %w", key, headgate.ErrEnded)
	}
	return false, false, fmt.Errorf("cancel %s: %w", key, headgate.ErrUnknownJob)
}

// Purge ends up to MaxBatchJobs dead letters for good, and tells of each whether it was one.
func (s *Store) Purge(ctx context.Context, keys []headgate.Key) (purged []bool, err error) {
	if s.all != nil {
		return spread(s, keys, tenantOf, func(part *Store, some []headgate.Key) ([]bool, error) { return part.Purge(ctx, some) })
	}
	args := make([]any, 0, 1+len(keys))
	args = append(args, s.now)
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
func (s *Store) Started(ctx context.Context, pool, worker, token string, key headgate.Key) error {
	reply, err := s.run(ctx, "start", pool, worker, token, encodeKey(key))
	if err != nil {
		return err
	}
	if reply[0] == "lost" {
		return fmt.Errorf("start %s: %w", key, headgate.ErrLeaseLost)
	}
	if reply[0] == "beside" {
		return fmt.Errorf("start %s: %w", key, ErrBeside)
	}
	return nil
}

// ErrBeside means that the worker runs a suspect (Record.Suspect) beside which another is not to run, so that its next death tells which
// of them it was.
var ErrBeside = errors.New("not beside the suspect that runs")
