package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// The ways in which a change of a roll-out is refused.
var (
	// ErrNoCandidate means that no roll-out is under way.
	ErrNoCandidate = errors.New("no roll-out is under way")
	// ErrCandidate means that another one is.
	ErrCandidate = errors.New("another roll-out is under way")
)

// StartCandidate stores a roll-out, as policy.Policy has it in JSON, beside the rules in force. One with another id has to
// be promoted or abandoned before.
func StartCandidate(ctx context.Context, store store.Deployment, candidate json.RawMessage, edit Edit) (Result, error) {
	return Change(ctx, store, edit, func(current policy.Policy) (policy.Policy, error) {
		next, err := current.With(candidate, "rollout")
		if err == nil && current.Rollout != nil && current.Rollout.ID != next.Rollout.ID {
			return next, fmt.Errorf("%w: %s, at %d %%", ErrCandidate, current.Rollout.ID, current.Rollout.Percent)
		}
		return next, err
	})
}

// SetShare changes the share of the tenants that have the rules of the roll-out that is under way.
func SetShare(ctx context.Context, store store.Deployment, percent int, edit Edit) (Result, error) {
	return changeCandidate(ctx, store, edit, func(current policy.Policy) (policy.Policy, error) {
		return current.With(json.RawMessage(strconv.Itoa(percent)), "rollout", "percent")
	})
}

// Promote puts the rules of the roll-out that is under way in force for everybody.
func Promote(ctx context.Context, store store.Deployment, edit Edit) (Result, error) {
	return changeCandidate(ctx, store, edit, func(current policy.Policy) (policy.Policy, error) { return current.Promoted(), nil })
}

// Abandon ends the roll-out that is under way; everybody has the rules that the others had.
func Abandon(ctx context.Context, store store.Deployment, edit Edit) (Result, error) {
	return changeCandidate(ctx, store, edit, func(current policy.Policy) (policy.Policy, error) { return current.With(nil, "rollout") })
}

func changeCandidate(ctx context.Context, store store.Deployment, edit Edit, change func(policy.Policy) (policy.Policy, error)) (Result, error) {
	return Change(ctx, store, edit, func(current policy.Policy) (policy.Policy, error) {
		if current.Rollout == nil {
			return current, ErrNoCandidate
		}
		return change(current)
	})
}
