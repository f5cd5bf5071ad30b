package redisstore

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestAnEditInStepsTakesBackWhatNoPolicySays: when the edit began a gate had a limit for a time, and one that moves by itself was set otherwise.
func TestAnEditInStepsTakesBackWhatNoPolicySays(t *testing.T) {
	t.Parallel()
	const tenants = 130
	y := newYard(t)
	ctx := t.Context()
	smtp := store.Cap{Gate: store.DownstreamGate("smtp"), Limit: 10, Least: 1, Most: 20, Loop: "smtp"}
	first := manyTenants(1, tenants, 5)
	first.Caps = append(first.Caps, smtp)
	check(t, y.store.PutPolicy(ctx, first))
	_, _, err := y.store.SetGate(ctx, store.Gate{Name: smtp.Gate, Limit: 2})
	check(t, err)
	_, _, err = y.store.SetGate(ctx, store.Gate{Name: store.TenantGate("t7"), Limit: 3, For: time.Hour, Then: 6})
	check(t, err)
	after := manyTenants(2, tenants, 9)
	after.Before = &first
	smtp.Limit = 12
	after.Caps = append(after.Caps, smtp)
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
		t.Errorf("%v", err)
	}
	gates, err := y.store.Gates(ctx)
	check(t, err)
	limits := map[store.GateName]int{}
	for _, g := range gates {
		limits[g.Name] = g.Limit
	}
	if moving, err := y.store.Adaptations(ctx); err != nil || len(moving) != 1 || limits["t:t7"] != 6 || limits["d:smtp"] != 10 {
		t.Errorf("%d jobs of t7 and %d of smtp may run, %+v moves by itself, %v", limits["t:t7"], limits["d:smtp"], moving, err)
	}
	check(t, y.store.PutPolicy(ctx, manyTenants(2, tenants, 6)))
}
