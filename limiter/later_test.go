package limiter

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestAPolicyOfALaterReleaseIsRefusedInWords: a limiter that runs while one is stored that has a name it does not know, as tenant_records is to a release
// before them, goes on neither without it nor by the policy before: each check has an error that says which name, and takes nothing. One that starts
// then does the same. Both go on under the next policy that they know.
func TestAPolicyOfALaterReleaseIsRefusedInWords(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	p := limited(none, admission.PerHour(1000).WithBurst(10))
	p.Version = 1
	put(t, s, p)
	running, r := start(t, s, Config{Exact: true, Timeout: patient}), Request{Tenant: "acme", Cost: 4, Remaining: true}
	if v, err := running.Check(t.Context(), r); err != nil || v.TokensLeft != 6 {
		t.Fatal(v, err)
	}
	p.Version = 2
	text, err := json.Marshal(p)
	check(t, err)
	later := strings.Replace(string(text), `{`, `{"records_of_later":true,`, 1)
	check(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Expected: 1, Version: 2, Text: []byte(later), Window: time.Second}))
	limiters := map[string]*Limiter{"running": running, "started": start(t, s, Config{Exact: true, Timeout: patient})}
	for what, l := range limiters {
		for range 3 {
			if v, err := l.Check(t.Context(), r); !errors.Is(err, policy.ErrStored) || !strings.Contains(err.Error(), "records_of_later") || v.Admitted {
				t.Errorf("%s: %+v, %v", what, v, err)
			}
		}
	}
	p.Version = 3
	put(t, s, p)
	left := admission.Tokens(6)
	for what, l := range limiters {
		left -= 3
		if v, err := l.Check(t.Context(), Request{Tenant: "acme", Cost: 3, Remaining: true}); err != nil || v.TokensLeft != left {
			t.Errorf("%s, under the next one: %+v, %v", what, v, err)
		}
	}
}
