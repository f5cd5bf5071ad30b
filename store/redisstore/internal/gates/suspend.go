package gates

import (
	"context"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Suspend refuses admission under a name, that of the gate of a queue, a tenant or a tenant in a queue, for a duration from 1 ms;
// zero means until Resume. Jobs that have entered are not touched. Producers are told the reason.
func (s *Bounds) Suspend(ctx context.Context, name store.GateName, duration time.Duration, by store.Intervention) error {
	_, err := s.suspend(ctx, name, store.AuditSuspend, codec.Micros(duration), false, by)
	return err
}

// Drain suspends a queue for a duration, and leaves a suspension that ends later as it is. until is when the one in force ends,
// zero for never. By calls with the same Act whoever waits until the queue is empty holds it for as long as it takes.
func (s *Bounds) Drain(ctx context.Context, queue string, duration time.Duration, by store.Intervention) (until time.Time, err error) {
	if by.Reason == "" {
		by.Reason = store.DrainReason
	}
	return s.suspend(ctx, store.QueueGate(queue), store.AuditDrain, codec.Micros(duration), true, by)
}

// Resume ends what Suspend began; was is false where nothing was suspended.
func (s *Bounds) Resume(ctx context.Context, name store.GateName, by store.Intervention) (was bool, err error) {
	until, err := s.suspend(ctx, name, store.AuditResume, "", false, by)
	return err == nil && !until.IsZero(), err
}

// suspend is what the script does in all partitions that a name is about. Of a resume, until is not zero where one was suspended.
func (s *Bounds) suspend(ctx context.Context, name store.GateName, action, duration string, keep bool, by store.Intervention) (until time.Time, err error) {
	if err := by.Validate(); err != nil {
		return time.Time{}, err
	}
	kept := ""
	if keep {
		kept = "1"
	}
	reply, err := s.conn.RunFor(ctx, 2, "suspend", s.conn.Now, string(name), duration, kept, codec.InterventionText(by, action))
	if err != nil {
		return time.Time{}, err
	}
	until, err = codec.ParseMicros(reply[1])
	if reply[0] == "resumed" {
		until = time.Now() // any but zero
	}
	return until, err
}
