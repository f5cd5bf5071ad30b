package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// place is a store of a test's own, and its client.
type place struct {
	store  store.Deployment
	client redis.UniversalClient
}

func newPlace(t *testing.T, server *redistest.Server) *place {
	t.Helper()
	client := server.Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	return &place{s, client}
}

// digest returns every key of the place with what it holds; those that keep matches only.
func (p *place) digest(t *testing.T, keep func(key string) bool) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys, err := p.client.Keys(t.Context(), redisstore.Keys(p.store).Base()+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if !keep(key) {
			continue
		}
		digest, err := p.client.Do(t.Context(), "debug", "digest-value", key).StringSlice() // not its dump: reading moves the fields of a hash that grows
		if err != nil {
			t.Fatal(err)
		}
		all[key] = digest[0]
	}
	return all
}

// effects returns what dispatch and admission know of the policy, apart from its version.
func (p *place) effects(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"state", "weights", "bounds", "maxparked", "gates"} {
		fields, err := p.client.HGetAll(t.Context(), redisstore.Keys(p.store).Base()+name).Result()
		if err != nil {
			t.Fatal(err)
		}
		for field, value := range keyspace.Unpacked(fields) {
			if name == "state" && !strings.HasPrefix(field, "cfg:") && !slices.Contains([]string{"dw", "nw", "nb", "nk"}, field) {
				continue
			}
			if kind := field[:2]; name == "gates" && (kind == "r:" || kind == "s:") {
				value = "a rate" // Its level and its stamp go on.
			}
			all[name+" "+field] = value
		}
	}
	return all
}

// drawEdit changes a policy in a random place.
func drawEdit(t *rapid.T, current policy.Policy) (policy.Policy, error) {
	limit := fmt.Sprintf(`{"tokens":%d,"per":"1s","burst":%d}`, rapid.IntRange(1, 1000).Draw(t, "tokens"), rapid.IntRange(1, 1000).Draw(t, "burst"))
	tenant := rapid.SampledFrom([]string{"acme", "bolt", "a/b"}).Draw(t, "tenant")
	most := rapid.IntRange(1, 9).Draw(t, "most")
	for _, edit := range []struct {
		value string
		path  []string
	}{
		{limit, []string{"global"}},
		{`{"tier":"premium","priority_weights":{"high":` + strconv.Itoa(most) + `}}`, []string{"tenants", tenant}},
		{limit, []string{"queue_limits", tenant + ":mail"}},
		{limit, []string{"priority_limits", tenant + ":mail:high"}},
		{`{"policy":"reject","max_jobs":` + strconv.Itoa(most) + `}`, []string{"overflows", tenant + ":mail"}},
		{fmt.Sprintf(`{"max_wait":"%ds","max_running":%d}`, most, most), []string{"queues", "mail"}},
		{fmt.Sprintf(`{"max_parked":%d,"dispatch":%s}`, most, limit), []string{"downstreams", "api"}},
	} {
		switch rapid.IntRange(0, 3).Draw(t, strings.Join(edit.path, "/")) {
		case 0:
			next, err := current.With(json.RawMessage(edit.value), edit.path...)
			if err != nil {
				return current, err
			}
			current = next
		case 1:
			next, err := current.With(nil, edit.path...)
			if err != nil {
				return current, err
			}
			current = next
		}
	}
	return current, nil
}

// TestRollbackIsTheOldVersionBitForBit: after random edits, going back to any version gives its text but for the number,
// and dispatch and admission all the settings that they had under it.
func TestRollbackIsTheOldVersionBitForBit(t *testing.T) {
	t.Parallel()
	p := newPlace(t, redistest.Shared(t))
	var number int64
	texts, effects := map[int64][]byte{}, map[int64]map[string]string{}
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		for range rapid.IntRange(1, 3).Draw(rt, "edits") {
			done, err := Change(ctx, p.store, Edit{Author: "ada", Expected: AnyVersion}, func(current policy.Policy) (policy.Policy, error) { return drawEdit(rt, current) })
			if err != nil {
				rt.Fatal(err)
			}
			number = done.To
			if texts[number], err = p.store.Policy(ctx); err != nil {
				rt.Fatal(err)
			}
			effects[number] = p.effects(t)
		}
		to := rapid.Int64Range(max(1, number-50), number).Draw(rt, "back to")
		done, err := Rollback(ctx, p.store, to, Edit{Author: "bob", Reason: "too strict", Expected: number})
		if err != nil {
			rt.Fatal(err)
		}
		got, err := p.store.Policy(ctx)
		if err != nil {
			rt.Fatal(err)
		}
		want := slices.Concat(fmt.Appendf(nil, `{"version":%d,`, done.To), bytes.TrimPrefix(texts[to], fmt.Appendf(nil, `{"version":%d,`, to)))
		if !bytes.Equal(got, want) {
			rt.Fatalf("back to %d is\n%s\nwant\n%s", to, got, want)
		}
		if now := p.effects(t); !maps.Equal(now, effects[to]) {
			rt.Fatalf("back to %d has the effects\n%v\nwant\n%v", to, now, effects[to])
		}
		page, err := p.store.Audit(ctx, store.AuditQuery{Limit: 1})
		if err != nil {
			rt.Fatal(err)
		}
		if last := page.Entries[0]; last.Restored != to || last.From != number || last.To != done.To || last.Author != "bob" || last.Reason != "too strict" {
			rt.Fatalf("the audit says %+v", last)
		}
		number = done.To
		texts[number], effects[number] = got, effects[to]
	})
}

// TestDryRunChangesNothing: whatever it is asked, each key holds the same bytes before and after, and it tells what Put
// then does.
func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, redistest.Shared(t))
	every := func(string) bool { return true }
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		current, err := Current(ctx, p.store)
		if err != nil {
			rt.Fatal(err)
		}
		document, err := drawEdit(rt, current)
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := p.store.Count(ctx, []store.ScopeCount{{Scope: admission.Global, Allowed: 9, Tokens: 9}, {Scope: "acme", Refused: 9, Tokens: 9}}); err != nil {
			rt.Fatal(err)
		}
		before := p.digest(t, every)
		would, err := DryRun(ctx, p.store, document)
		if err != nil {
			rt.Fatal(err)
		}
		if foreseen, err := Foresee(ctx, p.store, document); err != nil || foreseen.Coverage != 1 || len(foreseen.Scopes) != 2 {
			rt.Fatalf("%+v, %v", foreseen, err)
		}
		if after := p.digest(t, every); !maps.Equal(before, after) {
			rt.Fatalf("keys were\n%q\nand are\n%q", before, after)
		}
		done, err := Put(ctx, p.store, document, Edit{Expected: current.Version})
		if err != nil || done.To != would.To || len(done.Changes) != len(would.Changes) {
			rt.Fatalf("would: %+v, done: %+v, %v", would, done, err)
		}
	})
}

// TestDryRunTellsWhatWouldFail: a version that is not in force, a field that is bad, and a class in which jobs wait.
func TestDryRunTellsWhatWouldFail(t *testing.T) {
	t.Parallel()
	p := newPlace(t, redistest.Shared(t))
	ctx := t.Context()
	j := admission.NewJob("acme", "mail", "t", nil)
	j.ID, j.Priority = "j", admission.Low
	if _, err := p.store.Partitions()[0].Admit(ctx, 0, []store.Candidate{{Job: &j, Class: 2, Limits: &[admission.Levels]admission.Limit{}}}); err != nil {
		t.Fatal(err)
	}
	document := policy.Default()
	document.Queues = map[string]policy.Queue{"mail": {Classes: admission.DefaultClasses()[:2]}}
	if _, err := DryRun(ctx, p.store, document); !errors.Is(err, store.ErrClassInUse) {
		t.Errorf("a class in use: %v", err)
	}
	document = policy.Default()
	document.Version = 3
	if _, err := DryRun(ctx, p.store, document); !isStale(err) {
		t.Errorf("version 3 of 0: %v", err)
	}
	document.Version, document.Tenants = 0, map[string]policy.Tenant{"acme": {Tier: "gold"}}
	if _, err := DryRun(ctx, p.store, document); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("a tier that is none: %v", err)
	}
	if _, err := Rollback(ctx, p.store, 4, Edit{}); !errors.Is(err, store.ErrUnknownVersion) {
		t.Errorf("back to a version that never was: %v", err)
	}
}

func isStale(err error) bool {
	_, stale := errors.AsType[*StaleError](err)
	return stale
}

// TestTheAuditBoundsWhatItKeepsOfChanges: how many there were, and the first.
func TestTheAuditBoundsWhatItKeepsOfChanges(t *testing.T) {
	t.Parallel()
	p := newPlace(t, redistest.Shared(t))
	document := policy.Default()
	document.Tenants = map[string]policy.Tenant{}
	for i := range 100 {
		document.Tenants[fmt.Sprintf("%s-%d", strings.Repeat("t", 100), i)] = policy.Tenant{MaxRunning: 1}
	}
	if _, err := Put(t.Context(), p.store, document, Edit{}); err != nil {
		t.Fatal(err)
	}
	page, err := p.store.Audit(t.Context(), store.AuditQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	var kept policy.Summary
	if err := json.Unmarshal(page.Entries[0].Changes, &kept); err != nil || kept.Total != 100 || len(kept.Changes) != 20 {
		t.Errorf("%d of %d changes, %v", len(kept.Changes), kept.Total, err)
	}
}
