package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Rules is a policy, and what Prepare makes of it.
type Rules struct {
	Document policy.Policy
	Compiled *policy.Compiled
}

// ReadRules reads the policy in force.
func ReadRules(ctx context.Context, s store.Deployment) (r Rules, err error) {
	if r.Document, err = Current(ctx, s); err != nil {
		return r, err
	}
	r.Compiled, err = r.Document.Prepare()
	return r, err
}

// RecordResult is what an edit of a record did.
type RecordResult struct {
	// Version is that of the record since, policy.NoRecord where there is none any more.
	Version int64
	Record  policy.OwnLimits
	Changes []policy.Change
}

// EditRecord stores what change makes of the record of a tenant, beside the policy that read returns. Edit.Expected is a version of the record, or
// AnyVersion: then change may be called several times. The error is that of the record, policy.ErrNoRecords, a *store.RecordConflictError, or
// store.ErrStale where policies change faster than read reads them.
func EditRecord(ctx context.Context, s store.Deployment, read func(context.Context) (Rules, error), tenant string, edit Edit, change func(policy.OwnLimits) (policy.OwnLimits, error)) (done RecordResult, err error) {
	for try := 1; ; try++ {
		done, err = editRecord(ctx, s, read, tenant, edit, change)
		conflict := errors.Is(err, store.ErrConflict) && edit.Expected == AnyVersion
		if (!conflict && !errors.Is(err, store.ErrStale)) || try == editors {
			return done, err
		}
	}
}

func editRecord(ctx context.Context, s store.Deployment, read func(context.Context) (Rules, error), tenant string, edit Edit, change func(policy.OwnLimits) (policy.OwnLimits, error)) (done RecordResult, err error) {
	rules, err := read(ctx)
	if err != nil {
		return done, err
	}
	if !rules.Compiled.HasRecords() {
		return done, policy.ErrNoRecords
	}
	was, before, err := ReadRecord(ctx, s, tenant)
	if err != nil {
		return done, err
	}
	if edit.Expected != AnyVersion && edit.Expected != was.Version {
		return done, &store.RecordConflictError{Tenant: tenant, Expected: edit.Expected, InForce: was.Version}
	}
	if done.Record, err = change(before); err != nil {
		return done, err
	}
	to, err := NewRecordEdit(rules, tenant, done.Record)
	if err != nil {
		return done, err
	}
	if done.Changes, err = policy.DiffRecords(before, done.Record); err != nil {
		return done, err
	}
	if len(done.Changes) == 0 {
		done.Version = was.Version
		return done, nil
	}
	if to.Changes, err = json.Marshal(done.Changes); err != nil {
		return done, fmt.Errorf("encode changes: %w", err)
	}
	to.Expected, to.LongestFill = was.Version, max(to.LongestFill, before.LongestFill())
	to.By = store.Intervention{Author: edit.Author, Reason: edit.Reason}
	done.Version, err = s.PutRecord(ctx, to)
	return done, err
}

// NewRecordEdit returns the edit that puts a record in the place of any that there is, checked against a policy.
func NewRecordEdit(rules Rules, tenant string, r policy.OwnLimits) (e store.RecordEdit, err error) {
	if err := rules.Compiled.CheckRecord(r); err != nil {
		return e, err
	}
	e = store.RecordEdit{Tenant: tenant, Policy: rules.Compiled.Version(), LongestFill: max(rules.Document.LongestFill(), r.LongestFill())}
	e.Text, err = policy.MarshalRecord(r)
	return e, err
}

// ReadRecord reads the record of a tenant, the zero Record for none.
func ReadRecord(ctx context.Context, s store.Deployment, tenant string) (stored store.TenantRecord, r policy.OwnLimits, err error) {
	all, err := s.Records(ctx, tenant)
	if err != nil {
		return stored, r, err
	}
	if r, err = policy.UnmarshalRecord(all[0].Text); err != nil {
		err = fmt.Errorf("%w: record of tenant %s: %s", policy.ErrStored, tenant, err.Error())
	}
	return all[0], r, err
}
