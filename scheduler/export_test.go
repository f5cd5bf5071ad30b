package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Near looks at the limits of a policy, for tests.
type Near struct{ of near }

// NewNear returns one that knows of no scope that is near.
func NewNear(p *policy.Compiled) *Near { return &Near{near{policy: p}} }

// Look is what a look finds, each with its part in hundredths.
func (n *Near) Look(ctx context.Context, s store.Deployment, counted map[admission.Scope]store.Minute) (string, error) {
	found, err := n.of.look(ctx, s, counted)
	var all []string
	for _, scope := range slices.Sorted(maps.Keys(found)) {
		all = append(all, fmt.Sprintf("%s %.0f", scope, 100*found[scope].part()))
	}
	return strings.Join(all, ", "), err
}

// Looked reports whether s has seen the clock of Redis.
func (s *Scheduler) Looked() bool {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return !s.clock.mu.last.redis.IsZero()
}
