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
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// adoptBatch is how many records are read and compared at a time, and adoptWriters how many are stored at a time.
const (
	adoptBatch   = 256
	adoptWriters = 16
)

// The ways in which an adoption is refused.
var (
	// ErrAdoptCandidate means that a roll-out is under way: its rules are of the document, and records go before them.
	ErrAdoptCandidate = errors.New("a roll-out is under way, of which records of tenants would go before the rules: end it by headgate policy rollout promote or abandon")
	// ErrEdited means that somebody else edits what is to be adopted.
	ErrEdited = errors.New("somebody else has edited the policy, or keeps editing records, so the policy stays as it is: run the same again, which goes on and tells what records overrule")
)

// AdoptSpec says what to move from the policy into records of tenants.
type AdoptSpec struct {
	// Tenants are those whose values are moved; none is all.
	Tenants []string
	DryRun  bool
	// Author and Reason go into the audit.
	Author, Reason string
	// Observe hears, where it is not nil, how many of how many tenants are done.
	Observe func(done, of int)
}

// Adopted is what was moved, or would be.
type Adopted struct {
	// From is the version that had the values, To the one that has them no more, the same where there was nothing to move.
	From, To int64
	// Before and Bytes are how long the JSON of the policy was and is.
	Before, Bytes int
	// Tenants is how many had values that records have now. Of their records Stored were stored, and the others said the same already.
	Tenants, Stored int
	// Overruled are values that are not in force, since the record of their tenant says something else: they are gone. Left are values that stay.
	Overruled, Left []PolicyValue
}

// PolicyValue is a value that the policy has of one tenant.
type PolicyValue struct {
	Tenant string
	// Path is where the document has it: a JSON pointer.
	Path string
	// Reason says why it stays, empty for one that is gone.
	Reason string
}

// Adopt moves what the policy says of single tenants into their records, as far as a record can say it. First it stores the records, each with what its
// tenant has by the policy and not by a record yet; then the policy without that. What is in force for a tenant is the same before, after and at each step between, since a
// record goes before the policy: whoever is cut off runs it again. The policy is stored as any edit, and only if the version that was read is in force.
//
// Until the policy is stored it looks again whether the records are there: somebody may take one away, and has what the policy says then.
func Adopt(ctx context.Context, s store.Deployment, spec AdoptSpec) (Adopted, error) {
	rules, err := ReadRules(ctx, s)
	switch {
	case err != nil:
		return Adopted{}, err
	case !rules.Compiled.HasRecords():
		return Adopted{}, policy.ErrNoRecords
	case rules.Document.Rollout != nil:
		return Adopted{}, fmt.Errorf("%w (roll-out %s)", ErrAdoptCandidate, rules.Document.Rollout.ID)
	}
	a := adoption{store: s, rules: rules, spec: spec, said: saidOf(rules.Document, spec.Tenants)}
	a.by = store.Intervention{Author: spec.Author, Reason: spec.Reason, Act: rand.Text()}
	a.did.From, a.did.To = rules.Document.Version, rules.Document.Version
	a.names = slices.Sorted(maps.Keys(a.said))
	for try := 1; ; try++ {
		differ, err := a.look(ctx)
		if err != nil {
			return a.did, err
		}
		if differ == 0 || spec.DryRun {
			break
		}
		if try == editors {
			return a.did, ErrEdited
		}
	}
	ordered(a.did.Left)
	ordered(a.did.Overruled)
	return a.did, a.finish(ctx)
}

// adoption is one that is under way.
type adoption struct {
	store store.Deployment
	rules Rules
	spec  AdoptSpec
	by    store.Intervention
	// said is what the policy says of each tenant, as a record, and names are the tenants in order.
	said  map[string]policy.OwnLimits
	names []string
	// moved are those whose records say it.
	moved map[string]bool
	// looks is how often all records were looked at.
	looks int
	did   Adopted
}

// look reads the records of all tenants and stores those that do not say yet what is to be in force. It returns how many these were, also where
// somebody else was faster.
func (a *adoption) look(ctx context.Context) (differ int, err error) {
	a.moved, a.did.Overruled, a.did.Left = make(map[string]bool, len(a.names)), nil, nil
	done := 0
	for batch := range slices.Chunk(a.names, adoptBatch) {
		stored, err := a.store.Records(ctx, batch...)
		if err != nil {
			return differ, err
		}
		edits := make([]store.RecordEdit, 0, len(batch))
		for _, was := range stored {
			if e, ok := a.plan(was); ok {
				edits = append(edits, e)
			}
		}
		if differ += len(edits); a.spec.DryRun {
			a.did.Stored += len(edits)
		} else if err := a.put(ctx, edits); err != nil {
			return differ, err
		}
		if done += len(batch); a.spec.Observe != nil && a.looks == 0 {
			a.spec.Observe(done, len(a.names))
		}
	}
	a.looks++
	a.did.Tenants = len(a.moved)
	return differ, nil
}

// plan returns the edit of a record to what is to be in force; ok is false where it says that already, or cannot say it, so that the policy has to.
func (a *adoption) plan(was store.TenantRecord) (e store.RecordEdit, ok bool) {
	said := a.said[was.Tenant]
	own, err := policy.UnmarshalRecord(was.Text)
	if err == nil {
		merged, overruled := withSaid(own, said)
		var text []byte
		if text, err = policy.MarshalRecord(merged); err == nil && !bytes.Equal(text, was.Text) {
			e, err = NewRecordEdit(a.rules, was.Tenant, merged)
			e.Expected, e.By, ok = was.Version, a.by, err == nil
		}
		if err == nil {
			a.moved[was.Tenant] = true
			a.did.Overruled = append(a.did.Overruled, valuesOf(was.Tenant, overruled, "")...)
			return e, ok
		}
	}
	a.did.Left = append(a.did.Left, valuesOf(was.Tenant, said, "its record would not be valid: "+strings.ReplaceAll(err.Error(), "\n", "; "))...)
	return e, false
}

// put stores records, several at a time. One that somebody else has edited since is left for the next look.
func (a *adoption) put(ctx context.Context, edits []store.RecordEdit) error {
	errs := make([]error, adoptWriters)
	var all sync.WaitGroup
	var stored atomic.Int64
	for n := range errs {
		all.Go(func() {
			for i := n; i < len(edits) && errs[n] == nil; i += adoptWriters {
				_, err := a.store.PutRecord(ctx, edits[i])
				if err == nil {
					stored.Add(1)
				}
				if !errors.Is(err, store.ErrConflict) {
					errs[n] = err
				}
			}
		})
	}
	all.Wait()
	a.did.Stored += int(stored.Load())
	err := errors.Join(errs...)
	if errors.Is(err, store.ErrStale) {
		return ErrEdited
	}
	return err
}

// finish stores the policy without what records say, or only checks that it would be stored.
func (a *adoption) finish(ctx context.Context) error {
	text, err := policy.Marshal(a.rules.Document)
	if err != nil {
		return err
	}
	a.did.Before, a.did.Bytes = len(text), len(text)
	if len(a.moved) == 0 {
		return nil
	}
	next := without(a.rules.Document, a.moved)
	next.Version = a.did.From + 1
	if text, err = policy.Marshal(next); err != nil {
		return err
	}
	next.Version = 0
	var done Result
	if a.spec.DryRun {
		done, err = DryRun(ctx, a.store, next)
	} else {
		done, err = Put(ctx, a.store, next, Edit{Author: a.spec.Author, Reason: a.spec.Reason, Expected: a.did.From})
	}
	if _, stale := errors.AsType[*StaleError](err); stale || errors.Is(err, store.ErrConflict) {
		return ErrEdited
	}
	if err == nil {
		a.did.To, a.did.Bytes = done.To, len(text)
	}
	return err
}
