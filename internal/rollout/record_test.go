package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// recordedOf has a deployment of partitions in which acme has a record of 7 tokens at once and a day apart, bolt none, and both asked for 1,000.
func recordedOf(t *testing.T, partitions int) (s store.Deployment, base policy.Policy) {
	t.Helper()
	ctx := t.Context()
	s, err := redisstore.Open(ctx, redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	base = policy.Unlimited()
	base.TenantRecords = true
	base.Tiers[policy.StandardTier] = policy.Tier{Limit: few(100)}
	if _, err := Put(ctx, s, base, Edit{Expected: AnyVersion}); err != nil {
		t.Fatal(err)
	}
	if _, err := EditRecord(ctx, s, rulesOf(s), "acme", Edit{Expected: AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return own(7), nil }); err != nil {
		t.Fatal(err)
	}
	var counts []store.ScopeCount
	for _, tenant := range []admission.Scope{"acme", "bolt"} {
		counts = append(counts, store.ScopeCount{Scope: tenant, Refused: 1000, Tokens: 1000})
	}
	if _, err := s.Count(ctx, append(counts, store.ScopeCount{Scope: admission.Global, Always: true, Refused: 2000, Tokens: 2000})); err != nil {
		t.Fatal(err)
	}
	return s, base
}

// few is a limit of so many at once, and hardly any more in an hour.
func few(burst int64) admission.Limit {
	return admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: admission.Tokens(burst)}
}

func own(burst int64) policy.OwnLimits { return policy.OwnLimits{Limit: new(few(burst))} }

// allowedOf returns what of each scope is allowed before and after.
func allowedOf(f Forecast) map[admission.Scope][2]admission.Tokens {
	all := map[admission.Scope][2]admission.Tokens{}
	for _, one := range f.Scopes {
		all[one.Scope] = [2]admission.Tokens{one.Before.Allowed, one.After.Allowed}
	}
	return all
}

func equal(t *testing.T, got, want map[admission.Scope][2]admission.Tokens) {
	t.Helper()
	for scope, flow := range want {
		if got[scope] != flow {
			t.Errorf("%s is allowed %v, want %v", scope, got[scope], flow)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestADryRunGoesByRecords of tenants, which go before what either document says, of one partition and of three.
func TestADryRunGoesByRecords(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		s, next := recordedOf(t, partitions)
		next.Tiers = map[string]policy.Tier{policy.StandardTier: {Limit: few(40)}}
		f, err := Foresee(t.Context(), s, next)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, allowedOf(f), map[admission.Scope][2]admission.Tokens{"acme": {7, 7}, "bolt": {100, 40}, admission.Global: {107, 47}})
	}
}

// TestATriedRecordStoresNothing, and tells what it would have made of the tenant's hour: a lower limit, none of its own any more, and a first one.
func TestATriedRecordStoresNothing(t *testing.T) {
	t.Parallel()
	s, _ := recordedOf(t, 3)
	for _, row := range []struct {
		tenant string
		to     policy.OwnLimits
		want   [2]admission.Tokens
	}{{"acme", own(3), [2]admission.Tokens{7, 3}}, {"acme", policy.OwnLimits{}, [2]admission.Tokens{7, 100}}, {"bolt", own(20), [2]admission.Tokens{100, 20}}, {"acme", own(7), [2]admission.Tokens{7, 7}}} {
		was, _, err := ReadRecord(t.Context(), s, row.tenant)
		if err != nil {
			t.Fatal(err)
		}
		would, f, err := TryRecord(t.Context(), s, row.tenant, Edit{Expected: AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return row.to, nil })
		if err != nil {
			t.Fatal(err)
		}
		equal(t, allowedOf(f), map[admission.Scope][2]admission.Tokens{admission.Scope(row.tenant): row.want})
		if f.All.Before.Allowed-f.All.After.Allowed != row.want[0]-row.want[1] || would.Version != was.Version || (len(would.Changes) == 0) != (row.want[0] == row.want[1]) {
			t.Errorf("%s: %+v of all, %d changes of version %d", row.tenant, f.All, len(would.Changes), would.Version)
		}
		if now, _, err := ReadRecord(t.Context(), s, row.tenant); err != nil || now.Version != was.Version || string(now.Text) != string(was.Text) {
			t.Errorf("the record of %s is %+v, was %+v, %v", row.tenant, now, was, err)
		}
	}
	wrong := own(7)
	wrong.Limit.Burst = -1
	if _, _, err := TryRecord(t.Context(), s, "acme", Edit{Expected: AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return wrong, nil }); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("a burst of -1 is answered by %v", err)
	}
	if _, _, err := TryRecord(t.Context(), s, "acme", Edit{Expected: 1}, func(policy.OwnLimits) (policy.OwnLimits, error) { return own(3), nil }); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an edit of another version is answered by %v", err)
	}
}

func rulesOf(s store.Deployment) func(context.Context) (Rules, error) {
	return func(ctx context.Context) (Rules, error) { return ReadRules(ctx, s) }
}

// TestATierThatRecordsNameStays, by the count of all partitions; what else an edit says of it is stored, and it goes with the last record.
func TestATierThatRecordsNameStays(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		s, base := recordedOf(t, partitions)
		put := func(change func(*policy.Policy)) error {
			next := base
			next.Tiers = maps.Clone(base.Tiers)
			change(&next)
			_, dry := DryRun(t.Context(), s, next)
			_, err := Put(t.Context(), s, next, Edit{Expected: AnyVersion})
			if (dry == nil) != (err == nil) {
				t.Errorf("a dry run says %v, the edit %v", dry, err)
			}
			return err
		}
		give := func(tenant, tier string) {
			t.Helper()
			_, err := EditRecord(t.Context(), s, rulesOf(s), tenant, Edit{Expected: AnyVersion}, func(r policy.OwnLimits) (policy.OwnLimits, error) {
				r.Tier = tier
				return r, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		gold := func(limit int64, most int) func(*policy.Policy) {
			return func(p *policy.Policy) { p.Tiers["gold"] = policy.Tier{Limit: few(limit), MaxRunning: most} }
		}
		none := func(*policy.Policy) {}
		for i, step := range []struct {
			change func(*policy.Policy)
			want   string
		}{{gold(5, 0), ""}, {gold(6, 0), ""}, {none, "invalid tiers.gold (gone): allowed is to stay while the records of 20 tenants name it"}, {gold(6, 2), ""}} {
			err := put(step.change)
			if (err == nil) != (step.want == "") || err != nil && (!errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), step.want)) {
				t.Errorf("%d partitions, step %d: %v, want %s", partitions, i, err, step.want)
			}
			for n := range 20 {
				give(fmt.Sprint("t", n), "gold")
			}
		}
		for n := range 20 {
			give(fmt.Sprint("t", n), "")
		}
		if err := errors.Join(put(gold(6, 3)), put(none)); err != nil {
			t.Error(err)
		}
	}
}
