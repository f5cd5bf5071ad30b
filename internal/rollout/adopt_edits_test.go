package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// adoptable is a policy with a limit of acme, in whose record nothing is said of it.
func adoptable() policy.Policy {
	p := policy.Unlimited()
	p.TenantRecords = true
	p.Tenants = map[string]policy.Tenant{"acme": {Tier: policy.StandardTier, Limit: new(few(5))}, "bolt": {Tier: policy.StandardTier, Limit: new(few(6))}}
	return p
}

// TestEditsDuringAnAdoption by others are not lost: of the policy it stores nothing over theirs, a record that they change stays theirs, and one that they take away
// is stored again before the policy says nothing more of its tenant.
func TestEditsDuringAnAdoption(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		before string // the write, or the look, before which they edit
		edit   func(ctx context.Context, s store.Deployment) error
		refuse bool
		want   int64 // the burst of acme's limit in the end, once it was run again
	}{
		{"the policy, before the first record", "acme", runsOf("bolt", 7), true, 5},
		{"the policy, after the last record", "look 2", runsOf("bolt", 7), true, 5},
		{"the policy, before it is stored", "policy", runsOf("bolt", 7), true, 5},
		{"the record, before it is stored", "acme", recordOf(own(9)), false, 9},
		{"the record, before it is looked at again", "look 2", recordOf(policy.OwnLimits{MaxRunning: 3}), false, 5},
		{"the record goes before it is looked at again", "look 2", recordOf(policy.OwnLimits{}), false, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			s, err := newAdoptable(t, adoptable(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c := cutAfter(s, 100)
			var once atomic.Bool
			c.before = func(what string) {
				if what == row.before && once.CompareAndSwap(false, true) {
					if err := row.edit(ctx, s); err != nil {
						t.Error(err)
					}
				}
			}
			done, err := Adopt(ctx, c, AdoptSpec{})
			if row.refuse {
				current, bad := Current(ctx, s)
				if !errors.Is(err, ErrEdited) || bad != nil || current.Tenants["bolt"].MaxRunning != 7 || current.Tenants["acme"].Limit == nil {
					t.Fatalf("%+v, %v, %v", current.Tenants, err, bad)
				}
				done, err = Adopt(ctx, s, AdoptSpec{})
			}
			current, bad := Current(ctx, s)
			if err = errors.Join(err, bad); err != nil || len(current.Tenants) != 0 || done.To != current.Version {
				t.Fatalf("%+v, %+v, %v", done, current.Tenants, err)
			}
			if _, r, err := ReadRecord(ctx, s, "acme"); err != nil || r.Limit == nil || *r.Limit != few(row.want) {
				t.Errorf("acme has %+v, %v, want %d tokens", r, err, row.want)
			}
			if _, r, err := ReadRecord(ctx, s, "bolt"); err != nil || r.Limit == nil || (r.MaxRunning == 7) != row.refuse {
				t.Errorf("bolt has %+v, %v", r, err)
			}
		})
	}
}

// runsOf is an edit of the policy, and recordOf one of the record of acme.
func runsOf(tenant string, most int) func(context.Context, store.Deployment) error {
	return func(ctx context.Context, s store.Deployment) error {
		_, err := Change(ctx, s, Edit{Expected: AnyVersion}, runs(tenant, most))
		return err
	}
}

func recordOf(r policy.OwnLimits) func(context.Context, store.Deployment) error {
	return func(ctx context.Context, s store.Deployment) error {
		_, err := EditRecord(ctx, s, rulesOf(s), "acme", Edit{Expected: AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return r, nil })
		return err
	}
}

// TestWhatARecordCannotHoldStays in the policy whole, tells why, and other tenants are done.
func TestWhatARecordCannotHoldStays(t *testing.T) {
	t.Parallel()
	p := adoptable()
	p.QueueLimits = map[admission.Scope]admission.Limit{}
	for i := range policy.MaxRecordQueues + 1 {
		p.QueueLimits[admission.Scope(fmt.Sprint("acme:q", i))] = few(3)
	}
	p.Rollout = &policy.Rollout{ID: "half", Percent: 50, Rules: policy.Rules{MaxRunning: map[admission.Scope]int{"acme:mail": 2}}}
	s, err := newAdoptable(t, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Adopt(t.Context(), s, AdoptSpec{}); !errors.Is(err, ErrAdoptCandidate) || !strings.Contains(err.Error(), "half") {
		t.Errorf("during a roll-out: %v", err)
	}
	if _, err := Abandon(t.Context(), s, Edit{Expected: AnyVersion}); err != nil {
		t.Fatal(err)
	}
	done, err := Adopt(t.Context(), s, AdoptSpec{})
	current, bad := Current(t.Context(), s)
	if err = errors.Join(err, bad); err != nil || done.Tenants != 1 || done.Stored != 1 || len(done.Left) != policy.MaxRecordQueues+2 || len(current.QueueLimits) != policy.MaxRecordQueues+1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if one := done.Left[0]; one.Path != "/queue_limits/acme:q0" || !strings.Contains(one.Reason, "queues 65: allowed is up to 64") {
		t.Errorf("%+v", one)
	}
	if current.Tenants["acme"].Limit == nil || len(current.Tenants) != 1 {
		t.Errorf("%+v", current.Tenants)
	}
}
