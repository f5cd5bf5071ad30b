package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Rules is a policy, and what Prepare makes of it.
type Rules struct {
	Document policy.Policy
	Compiled *policy.Compiled
	// longest is the document's LongestFill where that is known, which looks at all of it; 0 where it is not.
	longest time.Duration
}

// ReadRules reads the policy in force.
func ReadRules(ctx context.Context, s store.Deployment) (r Rules, err error) {
	if r.Document, err = Current(ctx, s); err != nil {
		return r, err
	}
	r.Compiled, err = r.Document.Prepare()
	r.longest = r.Document.LongestFill()
	return r, err
}

// longestFill is that of the document, of which an edit of a thousand records asks once.
func (r *Rules) longestFill() time.Duration {
	if r.longest == 0 {
		return r.Document.LongestFill()
	}
	return r.longest
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
	done, to, err := planRecord(ctx, s, rules, tenant, edit, change)
	if err != nil || len(done.Changes) == 0 {
		return done, err
	}
	if to.Changes, err = policy.Summarize(done.Changes); err != nil {
		return done, err
	}
	to.By = store.Intervention{Author: edit.Author, Reason: edit.Reason}
	done.Version, err = s.PutRecord(ctx, to)
	return done, err
}

// planRecord checks an edit and tells what would change. Its Version is that of the record that there is.
func planRecord(ctx context.Context, s store.Deployment, rules Rules, tenant string, edit Edit, change func(policy.OwnLimits) (policy.OwnLimits, error)) (done RecordResult, to store.RecordEdit, err error) {
	if !rules.Compiled.HasRecords() {
		return done, to, policy.ErrNoRecords
	}
	was, before, err := ReadRecord(ctx, s, tenant)
	if err != nil {
		return done, to, err
	}
	if edit.Expected != AnyVersion && edit.Expected != was.Version {
		return done, to, &store.RecordConflictError{Tenant: tenant, Expected: edit.Expected, InForce: was.Version}
	}
	done.Version = was.Version
	if done.Record, err = change(before); err != nil {
		return done, to, err
	}
	if to, err = NewRecordEdit(rules, tenant, done.Record); err != nil {
		return done, to, err
	}
	to.Expected, to.LongestFill = was.Version, max(to.LongestFill, before.LongestFill())
	done.Changes, err = policy.DiffRecords(before, done.Record)
	return done, to, err
}

// TryRecord returns what EditRecord would change, and what that would have made of the last hour at the scopes of the tenant: Forecast.All and Tiers
// are of all, as the rest of the deployment would have had it. It stores nothing. The errors are those of EditRecord.
func TryRecord(ctx context.Context, s store.Deployment, tenant string, edit Edit, change func(policy.OwnLimits) (policy.OwnLimits, error)) (would RecordResult, f Forecast, err error) {
	rules, err := ReadRules(ctx, s)
	if err != nil {
		return would, f, err
	}
	would, to, err := planRecord(ctx, s, rules, tenant, edit, change)
	if err != nil {
		return would, f, err
	}
	after, err := rules.Document.Prepare()
	if err != nil {
		return would, f, err
	}
	hour, err := s.LastHour(ctx, forecastBudget)
	if err != nil {
		return would, f, err
	}
	if err := learn(ctx, s, hour, rules.Compiled, after); err != nil {
		return would, f, err
	}
	version := to.Expected + 1
	if len(to.Text) == 0 {
		version = policy.NoRecord
	}
	if err := after.Learn(tenant, version, to.Text); err != nil {
		return would, f, err
	}
	f = foresee(hour, rules.Compiled, after)
	f.Scopes = slices.DeleteFunc(f.Scopes, func(one ScopeFlow) bool {
		of, _, _, err := one.Scope.Parts()
		return err != nil || of != tenant
	})
	return would, f, nil
}

// NewRecordEdit returns the edit that puts a record in the place of any that there is, checked against a policy.
func NewRecordEdit(rules Rules, tenant string, r policy.OwnLimits) (e store.RecordEdit, err error) {
	if err := rules.Compiled.CheckRecord(r); err != nil {
		return e, err
	}
	e = store.RecordEdit{Tenant: tenant, Policy: rules.Compiled.Version(), LongestFill: max(rules.longestFill(), r.LongestFill()), Bounded: rules.Compiled.BoundsByTier()}
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
