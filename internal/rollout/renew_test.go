package rollout_test

import (
	"reflect"
	"testing"

	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
)

// TestRenewChangesTheVersionAlone renews a policy with overrides of each kind and a candidate.
func TestRenewChangesTheVersionAlone(t *testing.T) {
	t.Parallel()
	old, err := policy.Unmarshal([]byte(`{"version": 7, "dedup_window": "45s",
		"global": {"tokens": 100, "per": "1s", "burst": 200},
		"tenants": {"acme": {"limit": {"tokens": 5, "per": "1s", "burst": 9}, "max_running": 50, "priority_weights": {"high": 5}}},
		"queues": {"mail": {"max_wait": "30s", "max_running": 20, "overflow": {"policy": "spillover", "max_jobs": 10}}},
		"downstreams": {"partner": {"dispatch": {"tokens": 50, "per": "1s", "burst": 10}, "max_parked": 5000}},
		"rollout": {"id": "slower", "percent": 5, "rules": {"tenants": {"acme": {"limit": {"tokens": 1, "per": "1s", "burst": 1}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := policy.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	update, err := rollout.Renew(text, 8)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := policy.Unmarshal(update.Text)
	if err != nil {
		t.Fatal(err)
	}
	if renewed.Version != 8 || update.Version != 8 || update.Expected != 7 {
		t.Errorf("version %d, stored as %d in place of %d", renewed.Version, update.Version, update.Expected)
	}
	if len(update.Caps) != 3 || len(update.Queues) != 1 || update.MaxParked["partner"] != 5000 || update.Window != old.DedupWindow {
		t.Errorf("%+v", update)
	}
	if renewed.Version = old.Version; !reflect.DeepEqual(renewed, old) {
		t.Errorf("%+v became %+v", old, renewed)
	}
	if _, err := rollout.Renew([]byte("{"), 8); err == nil {
		t.Error("a policy that is none was renewed")
	}
}
