package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// The policy of a deployment of several partitions is that of the first. With it, in the same script, the first keeps what the
// others are to store, so that whoever finds one behind can bring it up (SpreadPolicy) where the edit's own process has died.

// PutPolicy implements Deployment: it stores a new version in the first partition and then in the others.
func (d *many) PutPolicy(ctx context.Context, u store.PolicyUpdate) error {
	if err := u.Validate(); err != nil {
		return err
	}
	if err := d.checkPolicies(ctx, u); err != nil && !errors.Is(err, store.ErrConflict) {
		return err
	}
	copied, err := json.Marshal(u)
	if err != nil {
		return fmt.Errorf("copy policy: %w", err)
	}
	if err := d.parts[0].StorePolicy(ctx, partOf(&u, 0, len(d.parts)), copied); err != nil {
		return err
	}
	return d.SpreadPolicy(ctx)
}

// CheckPolicy implements Deployment.
func (d *many) CheckPolicy(ctx context.Context, u store.PolicyUpdate) error {
	if err := u.Validate(); err != nil {
		return err
	}
	return d.checkPolicies(ctx, u)
}

// checkPolicies reports whether each partition would store a new version, which the first has to expect.
func (d *many) checkPolicies(ctx context.Context, u store.PolicyUpdate) error {
	if err := u.CheckPartitions(len(d.parts)); err != nil {
		return err
	}
	u.Edit = store.OnlyAsk
	return d.each(func(i int, part *Partition) error {
		of := partOf(&u, i, len(d.parts))
		if i > 0 {
			var err error
			if of.Expected, _, err = part.PolicyEdit(ctx); err != nil {
				return err
			}
		}
		return part.RunPolicy(ctx, of, nil)
	})
}

// SpreadPolicy finishes an edit of the policy that is stored in steps and whose process has died, and stores the policy of the first partition in those that have an older one, or does nothing. Any process may call
// it at any time. One in which jobs wait in a class that has gone meanwhile is ErrClassInUse, until they have run.
func (d *many) SpreadPolicy(ctx context.Context) error {
	if err := d.each(func(_ int, part *Partition) error { return part.SpreadPolicy(ctx) }); err != nil {
		return err
	}
	type inForce struct {
		version int64
		edit    string
	}
	all, err := gather(d, func(part *Partition) (v inForce, err error) {
		v.version, v.edit, err = part.PolicyEdit(ctx)
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
	text, err := redisconn.Client(d.parts[0].conn).Get(ctx, d.parts[0].conn.Partition.Base()+"copy").Bytes()
	if err != nil {
		return fmt.Errorf("read policy to copy: %w", redisconn.Unread(err))
	}
	var u store.PolicyUpdate
	if err := json.Unmarshal(text, &u); err != nil {
		return fmt.Errorf("read policy to copy: %w", err)
	}
	return d.each(func(i int, part *Partition) error {
		if i == 0 || all[i].version > u.Version || all[i] == (inForce{u.Version, u.Edit}) {
			return nil
		}
		of := partOf(&u, i, len(d.parts))
		if of.Expected != all[i].version { // What it says of buckets is by a version that this one never had.
			of.Expected, of.SameBuckets = all[i].version, false
		}
		err := part.StorePolicy(ctx, of, nil)
		if errors.Is(err, store.ErrConflict) {
			return nil // Somebody else has brought it up in the same moment, perhaps to a newer one.
		}
		return err
	})
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
func partOf(u *store.PolicyUpdate, index, parts int) store.PolicyUpdate {
	of := *u
	caps := make([]store.Cap, len(u.Caps))
	for i, c := range u.Caps {
		if store.SpansPartitions(c.Gate) {
			c.Parts = parts
			c.Rate.Burst = admission.Tokens(share(int(c.Rate.Burst), index, parts))
		}
		caps[i] = c
	}
	if u.Before != nil {
		before := partOf(u.Before, index, parts)
		of.Before = &before
	}
	of.Reserves = slices.Clone(u.Reserves)
	for i := range of.Reserves {
		of.Reserves[i].Slots = share(of.Reserves[i].Slots, index, parts)
	}
	of.Caps, of.MaxParked = caps, maps.Clone(u.MaxParked)
	for downstream, most := range u.MaxParked {
		of.MaxParked[downstream] = share(most, index, parts)
	}
	return of
}
