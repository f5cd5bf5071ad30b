package lua

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/breaker"
)

// ErrNoBreaker means that nothing is known of a downstream's breaker: it is closed.
var ErrNoBreaker = errors.New("no breaker of this downstream")

// maxForce bounds how long a state is forced for.
const maxForce = 365 * 24 * time.Hour

// ForceBreaker opens or closes a downstream's breaker for the whole fleet, for a duration, 0 for ever; whatever happens
// meanwhile. After that one that was forced open is half-open, one forced closed is closed with an empty window. The
// reason is kept, up to 1 KiB. more means that work is left for Promote.
func (s *Store) ForceBreaker(ctx context.Context, downstream string, to breaker.State, duration time.Duration, reason string) (more bool, err error) {
	var bad []error
	if err := headgate.ValidateName("downstream", downstream, false); err != nil {
		bad = append(bad, err)
	}
	if to != breaker.Open && to != breaker.Closed {
		bad = append(bad, &headgate.FieldError{Field: "state", Value: to.String(), Allowed: "open or closed"})
	}
	if duration < 0 || duration > maxForce {
		bad = append(bad, &headgate.FieldError{Field: "duration", Value: duration.String(), Allowed: "up to 8760h, 0 for ever"})
	}
	if err := errors.Join(bad...); err != nil {
		return false, err
	}
	return s.force(ctx, downstream, to.String(), duration, reason)
}

// ResetBreaker closes a downstream's breaker for the whole fleet, forgets what it has counted, and ends a forced
// state. One that was not closed starts slowly. The error is ErrNoBreaker where there is none.
func (s *Store) ResetBreaker(ctx context.Context, downstream, reason string) (more bool, err error) {
	return s.force(ctx, downstream, "reset", 0, reason)
}

func (s *Store) force(ctx context.Context, downstream, to string, duration time.Duration, reason string) (more bool, err error) {
	config, err := breaker.Config{}.Complete()
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, "force", s.now, downstream, to, micros(duration), reason[:min(len(reason), maxErrorText)], rulesText(config))
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
