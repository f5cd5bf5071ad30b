package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// The policy of a deployment of several partitions is that of the first. With it, in the same script, the first keeps what the
// others are to store, so that whoever finds one behind can bring it up (SpreadPolicy) where the edit's own process has died.

// putPolicies stores a new version in the first partition and then in the others.
func (s *Store) putPolicies(ctx context.Context, u PolicyUpdate) error {
	if err := s.checkPolicies(ctx, u); err != nil && !errors.Is(err, ErrConflict) {
		return err
	}
	copied, err := json.Marshal(u)
	if err != nil {
		return fmt.Errorf("copy policy: %w", err)
	}
	if err := s.all[0].putPolicy(ctx, u.part(0, len(s.all)), copied); err != nil {
		return err
	}
	return s.SpreadPolicy(ctx)
}

// checkPolicies reports whether each partition would store a new version, which the first has to expect.
func (s *Store) checkPolicies(ctx context.Context, u PolicyUpdate) error {
	if err := u.CheckPartitions(len(s.all)); err != nil {
		return err
	}
	u.Edit = onlyAsk
	return s.Each(func(i int, part *Store) error {
		of := u.part(i, len(s.all))
		if i > 0 {
			var err error
			if of.Expected, _, err = part.policyVersion(ctx); err != nil {
				return err
			}
		}
		return part.runPolicy(ctx, of, nil)
	})
}

// policyVersion returns the version in force in a partition and the edit that stored it.
func (s *Store) policyVersion(ctx context.Context) (version int64, edit string, err error) {
	values, err := connection(s).HMGet(ctx, s.partition.State(), "pv", "pe").Result()
	if err != nil {
		return 0, "", fmt.Errorf("read policy version: %w", redisconn.Unread(err))
	}
	return redisconn.Whole(redisconn.TextAt(values, 0)), redisconn.TextAt(values, 1), nil
}

// finishPolicy does what is left of an edit in a partition whose process has died.
func (s *Store) finishPolicy(ctx context.Context) error {
	left, err := connection(s).HMGet(ctx, s.partition.State(), "pg", "pr").Result()
	if err != nil {
		return fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	if redisconn.TextAt(left, 0) != "" {
		if err := s.finishEdit(ctx); err != nil {
			return err
		}
	}
	if redisconn.TextAt(left, 0)+redisconn.TextAt(left, 1) == "" {
		return nil
	}
	return s.countBounds(ctx)
}

// SpreadPolicy finishes an edit of the policy that is stored in steps and whose process has died, and stores the policy of the first partition in those that have an older one, or does nothing. Any process may call
// it at any time. One in which jobs wait in a class that has gone meanwhile is ErrClassInUse, until they have run.
func (s *Store) SpreadPolicy(ctx context.Context) error {
	if s.whole != nil {
		return s.whole.SpreadPolicy(ctx)
	}
	if s.all == nil {
		return s.finishPolicy(ctx)
	}
	if err := s.Each(func(_ int, part *Store) error { return part.finishPolicy(ctx) }); err != nil {
		return err
	}
	type inForce struct {
		version int64
		edit    string
	}
	all, err := gather(s, func(part *Store) (v inForce, err error) {
		v.version, v.edit, err = part.policyVersion(ctx)
		return v, err
	})
	first := all[0]
	behind := false
	for _, v := range all {
		behind = behind || v != first && v.version <= first.version
	}
	if err != nil || !behind {
		return err
	}
	text, err := connection(s).Get(ctx, s.partition.Base()+"copy").Bytes()
	if err != nil {
		return fmt.Errorf("read policy to copy: %w", redisconn.Unread(err))
	}
	var u PolicyUpdate
	if err := json.Unmarshal(text, &u); err != nil {
		return fmt.Errorf("read policy to copy: %w", err)
	}
	return s.Each(func(i int, part *Store) error {
		if i == 0 || all[i].version > u.Version || all[i] == (inForce{u.Version, u.Edit}) {
			return nil
		}
		of := u.part(i, len(s.all))
		of.Expected = all[i].version
		err := part.putPolicy(ctx, of, nil)
		if errors.Is(err, ErrConflict) {
			return nil // Somebody else has brought it up in the same moment, perhaps to a newer one.
		}
		return err
	})
}

// spansPartitions reports whether what a gate bounds may be in all partitions: each then has a share of the bound (Balancer).
func spansPartitions(name GateName) bool {
	kind, _ := name.split()
	return kind == gateQueue || kind == gateDownstream || kind == gateDownstreamRate
}

// share returns a partition's part of a number: the parts are whole and add up to it.
func share(n, index, parts int) int {
	part := n / parts
	if index < n%parts {
		part++
	}
	return part
}

// part returns what a partition is to store: of bursts and parked jobs its part, of caps and rates that span partitions the whole,
// of which it knows its share.
func (u *PolicyUpdate) part(index, parts int) PolicyUpdate {
	of := *u
	caps := make([]Cap, len(u.Caps))
	for i, c := range u.Caps {
		if spansPartitions(c.Gate) {
			c.parts = parts
			c.Rate.Burst = admission.Tokens(share(int(c.Rate.Burst), index, parts))
		}
		caps[i] = c
	}
	if u.Before != nil {
		before := u.Before.part(index, parts)
		of.Before = &before
	}
	of.Caps, of.MaxParked = caps, maps.Clone(u.MaxParked)
	for downstream, most := range u.MaxParked {
		of.MaxParked[downstream] = share(most, index, parts)
	}
	return of
}

// CheckPartitions refuses bounds that leave one of so many partitions nothing: its jobs would wait for ever.
func (u *PolicyUpdate) CheckPartitions(parts int) error {
	var bad []error
	least := func(field string, value int) {
		if value < parts {
			bad = append(bad, &admission.FieldError{
				Field: field, Value: strconv.Itoa(value), Allowed: fmt.Sprintf("%d or more: one for each partition", parts),
			})
		}
	}
	for _, c := range u.Caps {
		if !spansPartitions(c.Gate) {
			continue
		}
		if kind, _ := c.Gate.split(); kind == gateDownstreamRate {
			least("dispatch of "+c.Gate.Words()+": burst", int(c.Rate.Burst))
		} else {
			least("max_running of "+c.Gate.Words(), c.Limit)
		}
	}
	for downstream, most := range u.MaxParked {
		least("max_parked of downstream "+strconv.Quote(downstream), most)
	}
	return errors.Join(bad...)
}
