package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
)

// TestBreakersOfThePolicy: what is written is read, what is left out is the default, single downstreams win, and each mistake names
// its field, its value and its range.
func TestBreakersOfThePolicy(t *testing.T) {
	t.Parallel()
	const text = `{"version":3,"downstreams":{"smtp":{"breaker":{"failure_threshold":5,"failure_rate":0.25,"open_base":"2s","call_timeout":"30s"}},"bare":{"max_running":2}},
		"any_downstream":{"breaker":{"window":"20s"}}}`
	p, err := policy.Unmarshal([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	again, err := policy.Marshal(p)
	if err != nil || !strings.Contains(string(again), `"breaker":{"failure_rate":0.25,"failure_threshold":5,"open_base":"2s","call_timeout":"30s"}`) {
		t.Errorf("%s, %v", again, err)
	}
	compiled, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	smtp, ok := compiled.Breaker("smtp")
	if want := (breaker.Config{FailureThreshold: 5, FailureRate: 0.25, OpenBase: 2 * time.Second}); !ok || smtp.FailureThreshold != want.FailureThreshold ||
		smtp.FailureRate != want.FailureRate || smtp.OpenBase != want.OpenBase || smtp.Window != 0 || smtp.CallTimeout != 30*time.Second {
		t.Errorf("got %+v, %t", smtp, ok)
	}
	for _, other := range []string{"bare", "never-named"} {
		if got, ok := compiled.Breaker(other); !ok || got.Window != 20*time.Second || got.CallTimeout != 0 {
			t.Errorf("%s: got %+v, %t", other, got, ok)
		}
	}
	_, err = policy.Unmarshal([]byte(`{"version":1,"downstreams":{"smtp":{"breaker":{"failure_rate":2,"open_base":"1h","open_max":"5m","max_probes":101,"call_timeout":"25h"}}}}`))
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{
		"downstreams.smtp.breaker.failure_rate 2: allowed is above 0, at most 1", "downstreams.smtp.breaker.open_max 5m0s: allowed is 1h0m0s to 24h0m0s",
		"downstreams.smtp.breaker.max_probes 101: allowed is 1 to 100", "downstreams.smtp.breaker.call_timeout 25h0m0s: allowed is 1ms to 24h",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := policy.Unmarshal([]byte(`{"version":1,"downstreams":{"smtp":{"breaker":{"treshold":5}}}}`)); err == nil || !strings.Contains(err.Error(), "failure_threshold") {
		t.Errorf("got %v", err)
	}
	if none, ok := policy.Default().Prepare(); ok != nil {
		t.Error(ok)
	} else if _, ok := none.Breaker("smtp"); ok {
		t.Error("the built-in policy has rules of breakers")
	}
}
