package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
)

// ErrNoBreaker means that nothing is known of a downstream's breaker: it is closed.
var ErrNoBreaker = errors.New("no breaker of this downstream")

// Bounds of what an operator says.
const (
	minForce = time.Millisecond
	// MaxForce is the longest duration for which a state is forced.
	MaxForce = 365 * 24 * time.Hour
	// MaxReason is the largest size of a reason in bytes, also of a policy's.
	MaxReason = 1 << 10
)

// ForceBreaker opens or closes a downstream's breaker for the whole fleet, for a duration from 1 ms to MaxForce, 0 until it
// is reset; whatever happens meanwhile. After that one that was forced open is half-open, one forced closed is closed with
// an empty window. The reason is kept beside it. more means that work is left for Promote.
func (s *Store) ForceBreaker(ctx context.Context, downstream string, to breaker.State, duration time.Duration, by Intervention) (more bool, err error) {
	bad := []error{admission.ValidateName("downstream", downstream, false), by.Validate()}
	if to != breaker.Open && to != breaker.Closed {
		bad = append(bad, &admission.FieldError{Field: "state", Value: to.String(), Allowed: "open or closed"})
	}
	if duration != 0 && (duration < minForce || duration > MaxForce) {
		bad = append(bad, &admission.FieldError{Field: "duration", Value: duration.String(), Allowed: "1ms to 8760h, or 0 until it is reset"})
	}
	if err := errors.Join(bad...); err != nil {
		return false, err
	}
	return s.force(ctx, downstream, to.String(), duration, by)
}

// ResetBreaker closes a downstream's breaker for the whole fleet, forgets what it has counted, and ends a forced
// state. One that was not closed starts slowly. The error is ErrNoBreaker where there is none.
func (s *Store) ResetBreaker(ctx context.Context, downstream string, by Intervention) (more bool, err error) {
	if err := errors.Join(admission.ValidateName("downstream", downstream, false), by.Validate()); err != nil {
		return false, err
	}
	return s.force(ctx, downstream, "reset", 0, by)
}

func (s *Store) force(ctx context.Context, downstream, to string, duration time.Duration, by Intervention) (more bool, err error) {
	if s.all != nil {
		return s.forceAll(ctx, downstream, to, duration, by)
	}
	config, err := breaker.Config{}.Complete()
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, "force", s.now, downstream, to, micros(duration), by.Reason, rulesText(config), by.Author)
	if err != nil {
		return false, err
	}
	switch reply[0] {
	case "unknown":
		return false, fmt.Errorf("reset breaker of %s: %w", downstream, ErrNoBreaker)
	case "full":
		return false, fmt.Errorf("force breaker of %s: too many downstreams have one", downstream)
	}
	return reply[0] == "more", nil
}
