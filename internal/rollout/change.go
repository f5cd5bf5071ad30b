package rollout

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// AnyVersion is the Expected of an Edit that overrules whichever version is in force.
const AnyVersion = -1

// Edit says who changes the policy, why, and from what.
type Edit struct {
	// Author and Reason go into the audit; up to store.MaxAuthor and store.MaxReason bytes.
	Author, Reason string
	// Expected is the version that has to be in force, or AnyVersion. Another one is a *StaleError, or store.ErrConflict if
	// somebody was faster by a moment.
	Expected int64
}

// Result is what an edit did, or would do.
type Result struct {
	// From is the version that was in force before, To the one since.
	From, To int64
	Changes  []policy.Change
}

// plan is an edit that is ready to be stored.
type plan struct {
	Result

	update store.PolicyUpdate
	// base is the policy that was in force, and next the new one.
	base policy.Policy
	next policy.Policy
}

// Put stores a document as the next version. A document whose Version is not 0 must have been made from the version in
// force, or the error is a *StaleError.
func Put(ctx context.Context, store store.Deployment, document policy.Policy, edit Edit) (Result, error) {
	p, err := planChange(ctx, store, edit.Expected, func(policy.Policy) (policy.Policy, error) { return document, nil })
	if err != nil {
		return Result{}, err
	}
	return p.store(ctx, store, edit)
}

// editors is how many others may be faster one after the other before an edit is given up.
const editors = 100

// Change stores what change makes of the policy in force as the next version. An edit of AnyVersion is made anew of what
// others have put in force meanwhile, so change may be called several times; if they changed what it changes, or what is
// above or below that, the error is store.ErrConflict.
func Change(ctx context.Context, s store.Deployment, edit Edit, change func(policy.Policy) (policy.Policy, error)) (Result, error) {
	p, err := planChange(ctx, s, edit.Expected, change)
	if err != nil {
		return Result{}, err
	}
	seen := p.base
	for try := 1; ; try++ {
		done, lost := p.store(ctx, s, edit)
		if !errors.Is(lost, store.ErrConflict) || edit.Expected != AnyVersion || try == editors {
			return done, lost
		}
		if p, err = planChange(ctx, s, AnyVersion, change); err != nil {
			return Result{}, err
		}
		theirs, err := policy.Diff(seen, p.base)
		if err != nil {
			return Result{}, err
		}
		if path, both := overlap(p.Changes, theirs); both {
			return Result{}, fmt.Errorf("%w: somebody else has changed %s", lost, path)
		}
	}
}

// overlap returns a place that is changed by both, or below one that is.
func overlap(mine, theirs []policy.Change) (path string, found bool) {
	for _, a := range mine {
		for _, b := range theirs {
			if strings.HasPrefix(a.Path+"/", b.Path+"/") || strings.HasPrefix(b.Path+"/", a.Path+"/") {
				return b.Path, true
			}
		}
	}
	return "", false
}

// DryRun returns what Put would do now, or why it would fail, and changes nothing.
func DryRun(ctx context.Context, store store.Deployment, document policy.Policy) (Result, error) {
	p, err := planChange(ctx, store, AnyVersion, func(policy.Policy) (policy.Policy, error) { return document, nil })
	if err != nil {
		return Result{}, err
	}
	if err := p.keepsRecords(ctx, store); err != nil {
		return Result{}, err
	}
	if err := store.CheckPolicy(ctx, p.update); err != nil {
		return Result{}, fmt.Errorf("store policy: %w", err)
	}
	return p.Result, nil
}

// keepsRecords refuses a policy without records of tenants while there are some, and one by which a tier that they name would be gone: they would hold no
// more, and nobody would be told.
func (p plan) keepsRecords(ctx context.Context, store store.Deployment) error {
	if !p.base.TenantRecords {
		return nil
	}
	if p.next.TenantRecords {
		return p.keepsTiers(ctx, store)
	}
	n, err := store.CountRecords(ctx)
	if err != nil || n == 0 {
		return err
	}
	return &admission.FieldError{
		Field: "tenant_records", Value: "false",
		Allowed: fmt.Sprintf("true while %d tenants have records: keep them by headgate record export, and take them away by headgate record delete --all --yes", n),
	}
}

// keepsTiers asks which tiers records name where the new policy has one less.
func (p plan) keepsTiers(ctx context.Context, store store.Deployment) error {
	next, err := p.next.Prepare()
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(p.base.Tiers)), next.HasTier)
	if len(gone) == 0 {
		return nil
	}
	tiers, err := store.RecordTiers(ctx)
	if err != nil {
		return err
	}
	for _, name := range gone {
		if n := tiers[name]; n > 0 {
			return &admission.FieldError{
				Field: "tiers." + name, Value: "(gone)",
				Allowed: fmt.Sprintf("to stay while the records of %d tenants name it: give them another by headgate record set TENANT --tier NAME, or headgate record import", n),
			}
		}
	}
	return nil
}

// Rollback stores the document of a version that is kept as the next version, to the byte but for its version. One that
// is not kept is store.ErrUnknownVersion.
func Rollback(ctx context.Context, store store.Deployment, version int64, edit Edit) (Result, error) {
	old, err := store.PolicyVersion(ctx, version)
	if err != nil {
		return Result{}, err
	}
	document, err := policy.Unmarshal(old)
	if err != nil {
		return Result{}, fmt.Errorf("read version %d: %w", version, err)
	}
	current, err := Current(ctx, store)
	if err != nil {
		return Result{}, err
	}
	document.Version = 0 // It was made from no version.
	if err := expect(edit.Expected, document, current); err != nil {
		return Result{}, err
	}
	document.Version = current.Version + 1
	text, err := renumber(old, version, document.Version)
	if err != nil {
		return Result{}, err
	}
	p, err := newPlan(current, document, text)
	if err != nil {
		return Result{}, err
	}
	p.update.Restored = version
	return p.store(ctx, store, edit)
}

// renumber returns the text of a version with another version in it. policy.Marshal writes that first.
func renumber(text []byte, from, to int64) ([]byte, error) {
	rest, ok := bytes.CutPrefix(text, fmt.Appendf(nil, `{"version":%d,`, from))
	if !ok {
		return nil, fmt.Errorf("version %d does not begin with its number: another program has stored it", from)
	}
	return append(fmt.Appendf(nil, `{"version":%d,`, to), rest...), nil
}

func planChange(ctx context.Context, store store.Deployment, expected int64, change func(policy.Policy) (policy.Policy, error)) (plan, error) {
	current, err := Current(ctx, store)
	if err != nil {
		return plan{}, err
	}
	document, err := change(current)
	if err != nil {
		return plan{}, err
	}
	if err := expect(expected, document, current); err != nil {
		return plan{}, err
	}
	document.Version = current.Version + 1
	text, err := policy.Marshal(document)
	if err != nil {
		return plan{}, err
	}
	return newPlan(current, document, text)
}

// expect reports a version in force that is not the one that an edit was made from.
func expect(expected int64, document, current policy.Policy) error {
	if document.Version != 0 && document.Version != current.Version {
		return &StaleError{Document: document.Version, InForce: current.Version}
	}
	if expected != AnyVersion && expected != current.Version {
		return &StaleError{Document: expected, InForce: current.Version}
	}
	return nil
}

func newPlan(current, document policy.Policy, text []byte) (plan, error) {
	changes, err := policy.Diff(current, document)
	if err != nil {
		return plan{}, err
	}
	update, err := newUpdate(current.Version, document, text)
	if err != nil {
		return plan{}, err
	}
	if update.Changes, err = policy.Summarize(changes); err != nil {
		return plan{}, err
	}
	// A policy in force that this release would refuse cannot be compared with: then Redis tells what it has.
	if before, err := newUpdate(current.Version, current, nil); err == nil {
		update.Before = &before
	}
	update.SameBuckets = sameBuckets(changes)
	return plan{Result{current.Version, document.Version, changes}, update, current, document}, nil
}

// sameBuckets reports whether none of the changes is of a rate or a burst of a bucket.
func sameBuckets(changes []policy.Change) bool {
	for _, c := range changes {
		parts := strings.Split(c.Path, "/")
		last := parts[len(parts)-1]
		switch {
		case last == "max_running", len(parts) > 2 && parts[len(parts)-2] == "priority_weights":
		case len(parts) > 3 && parts[1] == "queues" && parts[3] == "each_tenant":
			return false
		case len(parts) > 3 && parts[1] == "tiers" && parts[3] == "overflow":
		case len(parts) > 5 && parts[1] == "tiers" && parts[3] == "queues" && parts[5] == "overflow":
		case len(parts) > 1 && (parts[1] == "queues" || parts[1] == "downstreams" || parts[1] == "overflows"):
		default:
			return false
		}
	}
	return true
}

func (p plan) store(ctx context.Context, store store.Deployment, edit Edit) (Result, error) {
	if err := p.keepsRecords(ctx, store); err != nil {
		return Result{}, err
	}
	p.update.Edit, p.update.Author, p.update.Reason = rand.Text(), edit.Author, edit.Reason
	if err := store.PutPolicy(ctx, p.update); err != nil {
		return Result{}, fmt.Errorf("store policy: %w", err)
	}
	return p.Result, nil
}
