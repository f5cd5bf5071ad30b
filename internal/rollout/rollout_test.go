package rollout

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestAPolicyGoesInAsTheNextVersionAndComesBack(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	if current, err := Current(t.Context(), s); err != nil || current.Version != 0 {
		t.Fatalf("an empty store holds version %d, %v", current.Version, err)
	}
	document := policy.Default()
	document.Tenants = map[string]policy.Tenant{"acme": {Tier: "premium"}}
	document.Queues = map[string]policy.Queue{"mail": {Classes: policy.PresetCritical(), ExpiredPolicy: policy.Drop}}
	for want := range int64(2) {
		if done, err := Put(t.Context(), s, document, Edit{Expected: AnyVersion}); err != nil || done.To != want+1 || done.From != want {
			t.Fatalf("stored as %+v, %v, want version %d", done, err, want+1)
		}
	}
	current, err := Current(t.Context(), s)
	if err != nil || current.Version != 2 || current.Tenants["acme"].Tier != "premium" {
		t.Fatalf("got %+v, %v", current, err)
	}
	current.Version = 1
	if _, err := Put(t.Context(), s, current, Edit{Expected: AnyVersion}); err == nil || err.Error() != `the policy was made from version 1, `+
		`but version 2 is in force: get that one and change it, or leave "version" out of the document to overrule it` {
		t.Errorf("a stale document gave %v", err)
	}
	document.Tenants["acme"] = policy.Tenant{Tier: "gold"}
	if _, err := Put(t.Context(), s, document, Edit{Expected: AnyVersion}); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("an unknown tier gave %v", err)
	}
}

func TestAnUpdateHoldsTheBoundsOfAQueue(t *testing.T) {
	t.Parallel()
	document := policy.Default()
	document.Queues = map[string]policy.Queue{
		"mail": {MaxWait: time.Minute, PoisonLimit: 2, KeepDead: time.Hour, MaxDead: 7}, "plain": {},
	}
	update, err := newUpdate(0, document, nil)
	if err != nil {
		t.Fatal(err)
	}
	mail, plain := update.Queues[0], update.Queues[1]
	if mail.MaxWait != time.Minute || mail.PoisonLimit != 2 || mail.KeepDead != time.Hour || mail.MaxDead != 7 {
		t.Errorf("got %+v", mail)
	}
	if plain.MaxWait != 0 || plain.PoisonLimit != store.DefaultPoisonLimit || plain.KeepDead != 0 || plain.MaxDead != store.DefaultMaxDead {
		t.Errorf("got %+v", plain)
	}
}

func TestAnUpdateNamesEveryWeight(t *testing.T) {
	t.Parallel()
	document := policy.Default()
	document.Version = 1
	document.Tenants = map[string]policy.Tenant{"acme": {Tier: "premium"}, "plain": {}}
	update, err := newUpdate(0, document, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]admission.Weight{}
	for _, w := range update.Weights {
		got[string(w.Class)+":"+w.Tenant] = w.Weight
	}
	want := map[string]admission.Weight{"high:": 2, "low:": 1, "medium:": 1, "high:acme": 3, "medium:acme": 2}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, weight := range want {
		if got[name] != weight {
			t.Errorf("weight of %s is %d, want %d", name, got[name], weight)
		}
	}
}
