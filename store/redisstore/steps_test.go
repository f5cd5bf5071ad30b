package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// manyTenants is an update that gives so many tenants a cap, a weight and a bound of their own.
func manyTenants(version int64, tenants, limit int) store.PolicyUpdate {
	u := edit(version, fmt.Sprintf(`{"version":%d}`, version))
	u.Queues = []store.QueueSettings{{
		Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, Overflow: store.Overflow{Policy: store.Reject, MaxJobs: 1000 + limit},
		Tiers: map[string]store.Overflow{"gold": {Policy: store.Reject, MaxJobs: 2000 + limit}},
	}}
	u.Tiers = map[string]string{}
	u.Caps = []store.Cap{{Gate: store.TenantGate(store.Every), Limit: limit + 100}}
	u.Weights = []store.TenantWeight{{Class: admission.High, Weight: admission.Weight(limit)}}
	for i := range tenants {
		name := fmt.Sprint("t", i)
		if i%3 == 0 {
			u.Tiers[name] = "gold"
		}
		u.Caps = append(u.Caps, store.Cap{Gate: store.TenantGate(name), Limit: limit + i%3})
		u.Weights = append(u.Weights, store.TenantWeight{Class: admission.High, Tenant: name, Weight: admission.Weight(limit + 1)})
		u.Overflows = append(u.Overflows, store.TenantOverflow{Tenant: name, Queue: "mail", Overflow: store.Overflow{Policy: store.Reject, MaxJobs: limit}})
	}
	return u
}

// known is what scripts know of the policy, without what it counts.
func (y *yard) known() policies.Settings {
	y.tb.Helper()
	all, err := y.store.Stored(y.tb.Context())
	check(y.tb, err)
	gates, err := y.store.Gates(y.tb.Context())
	check(y.tb, err)
	for _, g := range gates {
		all[policies.SettingKey{Kind: policies.SettingGate, Name: string(g.Name)}] = strconv.Itoa(g.Limit)
	}
	return all
}

// TestAnEditInStepsIsWholeOrNotThere kills the editor at each of its commands, before and after Redis has carried it out, and looks at
// each moment: every setting is the old version's or the new one's, the text and the version change together, and after the next process
// has come by everything is the new one's, or the old one's where the edit had not begun. An edit of somebody else meanwhile waits for it.
func TestAnEditInStepsIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	const tenants = 130 // some four portions
	before, after := manyTenants(1, tenants, 5), manyTenants(2, tenants, 9)
	after.Caps, after.Weights, after.Overflows = after.Caps[:tenants/2], after.Weights[:tenants/2], after.Overflows[:tenants/2] // and some go
	after.Edit = "the edit"
	delete(after.Tiers, "t3")
	after.Tiers["t6"] = "tin"
	ends := map[string]int{}
	for cut := 1; ; cut++ {
		late := cut%2 == 0
		y := newYard(t)
		check(t, y.store.PutPolicy(t.Context(), before))
		old := y.known()
		client := redistest.Shared(t).Client(t)
		editor, err := openOnly(t.Context(), client, y.store.config)
		check(t, err)
		client.AddHook(&cutter{left: (cut + 1) / 2, late: late, see: func() { y.halves(&before, &after) }})
		err = editor.PutPolicy(t.Context(), after)
		begun, errBegun := y.client.HExists(t.Context(), y.store.conn.Partition.State(), "pg").Result()
		check(t, errBegun)
		if begun {
			ends["begun"]++
			other := manyTenants(2, 1, 7)
			other.Edit = "other"
			if late {
				check(t, y.store.SpreadPolicy(t.Context()))
			} else if err := y.store.PutPolicy(t.Context(), other); !errors.Is(err, store.ErrConflict) {
				t.Fatalf("cut %d: another edit: %v", cut, err)
			}
		}
		version, _, errVersion := y.store.PolicyEdit(t.Context())
		check(t, errVersion)
		now := y.known()
		want := old
		if version == 2 {
			ends["stored"]++
			want = knownOf(&after)
		}
		if !maps.Equal(now, want) {
			t.Fatalf("cut %d, version %d: %s", cut, version, differs(now, want))
		}
		if page, errAudit := y.store.Audit(t.Context(), store.AuditQuery{}); errAudit != nil || int64(len(page.Entries)) != version {
			t.Fatalf("cut %d: %d entries of version %d, %v", cut, len(page.Entries), version, errAudit)
		}
		if err == nil {
			break
		}
	}
	if ends["begun"] < 4 || ends["stored"] < 4 {
		t.Errorf("%v", ends)
	}
}

func knownOf(u *store.PolicyUpdate) policies.Settings {
	all := policies.SettingsOf(u)
	for key, value := range all {
		if key.Kind == policies.SettingGate {
			all[key] = strings.Split(value, "|")[0]
		}
	}
	return all
}

func differs(a, b policies.Settings) string {
	for _, key := range slices.SortedFunc(maps.Keys(a), policies.CompareKeys) {
		if a[key] != b[key] {
			return fmt.Sprintf("%v is %q, want %q", key, a[key], b[key])
		}
	}
	return fmt.Sprintf("%d settings, want %d", len(a), len(b))
}

// halves fails where any setting is neither the old version's nor the new one's, or what holds for all others is not that of the version.
func (y *yard) halves(before, after *store.PolicyUpdate) {
	y.tb.Helper()
	pipe := y.client.TxPipeline()
	base := y.store.conn.Partition.Base()
	version := pipe.HMGet(y.tb.Context(), base+"state", "pv", "cfg:mail")
	text := pipe.Get(y.tb.Context(), base+"policy")
	gates, weights, bounds := pipe.HGetAll(y.tb.Context(), base+"gates"), pipe.HGetAll(y.tb.Context(), base+"weights"), pipe.HGetAll(y.tb.Context(), base+"bounds")
	_, err := pipe.Exec(y.tb.Context())
	check(y.tb, err)
	old, next := knownOf(before), knownOf(after)
	inForce := old
	if redisconn.TextAt(version.Val(), 0) == "2" {
		inForce = next
	}
	if next[policies.SettingKey{}] != "" || (text.Val() == string(after.Text)) != (redisconn.TextAt(version.Val(), 0) == "2") {
		y.tb.Errorf("version %v with the text %s", version.Val(), text.Val())
	}
	now := policies.Settings{{Kind: policies.SettingQueue, Name: "mail"}: redisconn.TextAt(version.Val(), 1)}
	for kind, fields := range map[string]map[string]string{policies.SettingGate: gates.Val(), policies.SettingWeight: weights.Val(), policies.SettingBound: bounds.Val()} {
		for name, value := range fields {
			now[policies.SettingKey{Kind: kind, Name: name}] = strings.Split(value, "|")[0]
		}
	}
	value := func(of policies.Settings, key policies.SettingKey) string {
		if v, own := of[key]; own {
			return v
		}
		return of.Instead(key)
	}
	for _, all := range []policies.Settings{old, next} {
		for key := range all {
			got := value(now, key)
			if key.IsGeneral() && got != inForce[key] {
				y.tb.Errorf("version %s: %v is %s, want %s", redisconn.TextAt(version.Val(), 0), key, got, inForce[key])
			}
			if got != value(old, key) && got != value(next, key) {
				y.tb.Fatalf("version %s: %v is %q, neither %q nor %q", redisconn.TextAt(version.Val(), 0), key, got, value(old, key), value(next, key))
			}
		}
	}
}

// cutter lets so many commands through, calls see after each, and then none any more; the last one late, after Redis has carried it out.
type cutter struct {
	left int
	late bool
	see  func()
}

func (c *cutter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cutter) pass(do func() error) error {
	if c.left--; c.left < 0 || c.left == 0 && !c.late {
		return errDied
	}
	err := do()
	c.see()
	if c.left == 0 && (err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") && !redis.HasErrorPrefix(err, "Function not found")) {
		return errDied
	}
	return err
}

func (c *cutter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return c.pass(func() error { return next(ctx, cmd) })
	}
}

func (c *cutter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.pass(func() error { return next(ctx, cmds) })
	}
}

// TestAnEditInStepsTakesBackWhatItDid where jobs have come to wait, while it went on, in a class that would go.
func TestAnEditInStepsTakesBackWhatItDid(t *testing.T) {
	t.Parallel()
	const tenants = 130
	y := newYard(t)
	ctx := t.Context()
	check(t, y.store.PutPolicy(ctx, manyTenants(1, tenants, 5)))
	old := y.known()
	after := manyTenants(2, tenants, 9)
	after.Queues[0].Classes = admission.DefaultClasses()[:1]
	client := redistest.Shared(t).Client(t)
	editor, err := openOnly(ctx, client, y.store.config)
	check(t, err)
	var once sync.Once
	client.AddHook(&cutter{left: 1 << 20, see: func() {
		if y.client.HGet(ctx, y.store.conn.Partition.Base()+"edit:"+after.Edit, "at").Val() == "2" {
			once.Do(func() { y.admitAt(1, mail("acme", "waits")) }) //nolint:contextcheck // the test's own
		}
	}})
	if err := editor.PutPolicy(ctx, after); !errors.Is(err, store.ErrClassInUse) {
		t.Fatalf("%v", err)
	}
	if now := y.known(); !maps.Equal(now, old) {
		t.Errorf("%s", differs(now, old))
	}
	if keys := y.client.Keys(ctx, y.store.conn.Partition.Base()+"*:"+after.Edit).Val(); len(keys) > 0 {
		t.Errorf("left behind: %v", keys)
	}
	check(t, y.store.PutPolicy(ctx, manyTenants(2, tenants, 6)))
}

// TestAnEditOfOneTenantWritesOneTenant: what a script is told, and what it looks at, does not grow with the tenants that an edit leaves
// alone, and one that changes all of them does not do so in one script.
func TestAnEditOfOneTenantWritesOneTenant(t *testing.T) {
	t.Parallel()
	const tenants = 500
	y := newYard(t)
	ctx := t.Context()
	client := redistest.Shared(t).Client(t)
	s, err := openOnly(ctx, client, y.store.config)
	check(t, err)
	var longest, scans atomic.Int64
	client.AddHook(seen{func(cmd redis.Cmder) {
		switch name := cmd.Name(); name {
		case "fcall", "evalsha", "eval", "hset", "rpush":
			longest.Store(max(longest.Load(), int64(len(cmd.Args()))))
		case "hscan", "scan":
			scans.Add(1)
		}
	}})
	first := manyTenants(1, tenants, 5)
	first.SameBuckets = true
	check(t, s.PutPolicy(ctx, first))
	if n := longest.Load(); n > 200 {
		t.Errorf("an edit of %d tenants has a command of %d arguments", tenants, n)
	}
	next := manyTenants(2, tenants, 5)
	next.Caps[7].Limit = 77
	next.Before, next.SameBuckets = &first, true
	scans.Store(0)
	longest.Store(0)
	check(t, s.PutPolicy(ctx, next))
	if n := longest.Load(); n > 30 || scans.Load() > 0 {
		t.Errorf("an edit of one cap has a command of %d arguments, and %d scans", n, scans.Load())
	}
	if now, want := y.known(), knownOf(&next); !maps.Equal(now, want) {
		t.Errorf("%s", differs(now, want))
	}
	// Where Redis has something else than the update before, what it has counts.
	check(t, y.client.HSet(ctx, y.store.conn.Partition.Base()+"weights", "high:stray", 9).Err())
	check(t, y.client.HSet(ctx, y.store.conn.Partition.State(), "ps", "").Err())
	last := manyTenants(3, tenants, 5)
	last.Before = &next
	check(t, s.PutPolicy(ctx, last))
	if now, want := y.known(), knownOf(&last); !maps.Equal(now, want) {
		t.Errorf("%s", differs(now, want))
	}
}

// seen calls a function with each command.
type seen struct{ see func(redis.Cmder) }

func (s seen) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s seen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { s.see(cmd); return next(ctx, cmd) }
}

func (s seen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			s.see(cmd)
		}
		return next(ctx, cmds)
	}
}

// TestEditorsOfManyTenantsTakeTurns: of edits in steps at a time one is stored and the others hear of a conflict, each time.
func TestEditorsOfManyTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	for version := int64(1); version <= 3; version++ {
		var stored, lost atomic.Int32
		var all sync.WaitGroup
		for e := range 5 {
			all.Go(func() {
				u := manyTenants(version, 130, 5+e)
				u.Edit = fmt.Sprint("edit", version, "-", e)
				switch err := y.store.PutPolicy(ctx, u); {
				case err == nil:
					stored.Add(1)
				case errors.Is(err, store.ErrConflict):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if stored.Load() != 1 || lost.Load() != 4 {
			t.Errorf("version %d: %d stored, %d lost", version, stored.Load(), lost.Load())
		}
	}
}
