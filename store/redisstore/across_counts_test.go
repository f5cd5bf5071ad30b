package redisstore

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestWhatIsCountedOfATenantIsInItsPartition asks a candidate in shadow and counts, by the store of all partitions: each has
// what is of its tenants, the hour has all of it, and a lease is looked for where its tenant is.
func TestWhatIsCountedOfATenantIsInItsPartition(t *testing.T) {
	t.Parallel()
	const tenants = 40
	s, ctx := openParts(t, 4, tenants), t.Context()
	var questions []store.Question
	var counts []store.ScopeCount
	own := map[*Partition]int64{}
	for i := range tenants {
		tenant := keyOfTenant(i).Tenant
		questions = append(questions, store.Question{Tenant: tenant, Cost: 1})
		counts = append(counts, store.ScopeCount{Scope: admission.Scope(tenant), Allowed: 1, Tokens: 1})
		own[s.of(tenant)]++
	}
	check(t, s.Shadow(ctx, 0, "candidate", questions))
	_, err := s.Count(ctx, counts)
	check(t, err)
	for i, part := range s.parts {
		if found, err := part.ShadowCounts(ctx); err != nil || found.Allowed != own[part] {
			t.Errorf("partition %d counts %d answers of %d: %v", i, found.Allowed, own[part], err)
		}
	}
	hour, err := s.LastHour(ctx, time.Minute)
	check(t, err)
	found := map[admission.Scope]bool{}
	for _, minute := range hour {
		for scope := range minute.Scopes {
			found[scope] = true
		}
	}
	for _, c := range counts {
		if !found[c.Scope] {
			t.Errorf("the hour lacks %s", c.Scope)
		}
	}
	for _, part := range s.parts {
		_, err := part.Register(ctx, "w", yardPool, tenants, time.Minute)
		check(t, err)
		leases, err := part.Read(ctx, "w", yardPool.ID(), tenants, -1, false)
		check(t, err)
		for _, l := range leases {
			key := admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}
			if held, err := s.Held(ctx, yardPool.ID(), "w", l.Token, key); err != nil || held.Job.ID != key.ID {
				t.Errorf("the lease of %s: %v", key, err)
			}
		}
	}
}

// TestWhereNamesAreRefusedAllIsCounted: in all partitions and in more than one call, and the answer says that it is, so that nobody counts it again.
func TestWhereNamesAreRefusedAllIsCounted(t *testing.T) {
	t.Parallel()
	const tenants = 2 * store.MaxBatchJobs
	for _, partitions := range []int{1, 4} {
		client, refused := redistest.Shared(t).Client(t), &atomic.Bool{}
		redistest.OnScript(client, func(script string, run func() error) error {
			if script == "distinct" && refused.Load() {
				return redistest.ErrNoNames
			}
			return run()
		})
		s, err := openMany(t.Context(), client, Config{Prefix: redistest.Prefix(t) + strconv.Itoa(partitions), Partitions: partitions})
		check(t, err)
		counts := []store.ScopeCount{{Queue: "mail", Allowed: 1, Watched: true, Tenants: []string{"tenant-0"}, Jobs: []string{"tenant-0:1"}}}
		for i := range tenants {
			counts = append(counts, store.ScopeCount{Scope: admission.Scope(keyOfTenant(i).Tenant), Allowed: 1, Tokens: 1})
		}
		refused.Store(true)
		if done, err := s.Count(t.Context(), counts); done != len(counts) || err == nil || store.InDoubt(err) {
			t.Errorf("%d partitions: %d of %d are counted: %v", partitions, done, len(counts), err)
		}
		for _, c := range counts[1:] {
			if minutes, err := s.Minutes(t.Context(), c.Scope); err != nil || len(minutes) != 1 {
				t.Fatalf("%d partitions, %s: %+v, %v", partitions, c.Scope, minutes, err)
			}
		}
		refused.Store(false)
		names := store.ScopeCount{Queue: "mail", Watched: true, Tenants: counts[0].Tenants, Jobs: counts[0].Jobs}
		_, err = s.Count(t.Context(), []store.ScopeCount{names})
		check(t, err)
		distincts, err := s.Distincts(t.Context(), "mail")
		check(t, err)
		of := distincts["mail"]
		if got := max(of.ThisHour.Jobs, of.LastHour.Jobs); got != 1 {
			t.Errorf("%d partitions: %+v when they are told", partitions, distincts)
		}
	}
}
