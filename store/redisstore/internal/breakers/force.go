package breakers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// ForceBreaker opens or closes a downstream's breaker for the whole fleet, for a duration from 1 ms to MaxForce, 0 until it
// is reset; whatever happens meanwhile. After that one that was forced open is half-open, one forced closed is closed with
// an empty window. The reason is kept beside it. more means that work is left for Promote.
func (s *Fleet) ForceBreaker(ctx context.Context, downstream string, to breaker.State, duration time.Duration, by store.Intervention) (more bool, err error) {
	bad := []error{admission.ValidateService("downstream", downstream, false), by.Validate()}
	if to != breaker.Open && to != breaker.Closed {
		bad = append(bad, &admission.FieldError{Field: "state", Value: to.String(), Allowed: "open or closed"})
	}
	if duration != 0 && (duration < store.MinForce || duration > store.MaxForce) {
		bad = append(bad, &admission.FieldError{Field: "duration", Value: duration.String(), Allowed: "1ms to 8760h, or 0 until it is reset"})
	}
	if err := errors.Join(bad...); err != nil {
		return false, err
	}
	return s.force(ctx, downstream, to.String(), duration, by)
}

// ResetBreaker closes a downstream's breaker for the whole fleet, forgets what it has counted, and ends a forced
// state. One that was not closed starts slowly. The error is ErrNoBreaker where there is none.
func (s *Fleet) ResetBreaker(ctx context.Context, downstream string, by store.Intervention) (more bool, err error) {
	if err := errors.Join(admission.ValidateService("downstream", downstream, false), by.Validate()); err != nil {
		return false, err
	}
	return s.force(ctx, downstream, "reset", 0, by)
}

func (s *Fleet) force(ctx context.Context, downstream, to string, duration time.Duration, by store.Intervention) (more bool, err error) {
	config, err := breaker.Config{}.Complete()
	if err != nil {
		return false, err
	}
	reply, err := s.conn.Run(ctx, "force", s.conn.Now, downstream, to, codec.Micros(duration), by.Reason, rulesText(config), by.Author)
	if err != nil {
		return false, err
	}
	switch reply[0] {
	case "unknown":
		return false, fmt.Errorf("reset breaker of %s: %w", downstream, store.ErrNoBreaker)
	case "full":
		return false, fmt.Errorf("force breaker of %s: too many downstreams have one", downstream)
	}
	return reply[0] == "more", nil
}
