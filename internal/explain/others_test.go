package explain_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/shown"
)

// TestExplainTellsWhatIsKeptOfTheGlobalLimit: to others alone, with what they have left.
func TestExplainTellsWhatIsKeptOfTheGlobalLimit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.put(`{"global":{"tokens":10,"per":"24h","burst":8},"global_reserved":{"classes":["high"],"percent":75}}`, "")
	for i := range 2 {
		s.enqueue("j" + strconv.Itoa(i))
	}
	for scope, want := range map[string]string{
		"global": "75% of global are kept for high: others have 0 of 2 tokens left and get 10 tokens in 96h", "acme:mail:low": "75% of global are kept for high", "acme:mail:high": "",
	} {
		e, err := explain.New(t.Context(), s.store, explain.Scope, scope, shown.Everything)
		must(t, err)
		found := ""
		for _, r := range e.Reasons {
			if r.Kind == explain.KindReserved {
				if found = r.Text; !r.Binds || r.Until.IsZero() || r.Rule == nil || r.Rule.Path != "/global_reserved" {
					t.Errorf("%s: %+v", scope, r)
				}
			}
		}
		if !strings.HasPrefix(found, want) || want == "" && found != "" {
			t.Errorf("of %s it says %q, want %q", scope, found, want)
		}
		if refused := strings.Contains(e.Summary, "refused by global"); refused != (want != "") {
			t.Errorf("of %s it says %q", scope, e.Summary)
		}
	}
}

// TestExplainTellsWhatMayGoBesideLimits: of a class that may, with what is left of its tenant's share.
func TestExplainTellsWhatMayGoBesideLimits(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.put(`{"global":{"tokens":10,"per":"24h","burst":50},"tenants":{"acme":{"limit":{"tokens":10,"per":"24h","burst":40}}},"bypass":{"classes":["medium"],"reserve_percent":20,"share_percent":25}}`, "")
	for i := range 2 {
		s.enqueue("j" + strconv.Itoa(i))
	}
	for scope, want := range map[string]string{
		"acme:mail:medium": "jobs of class medium go beside the limits of queue and class, where acme has used less than 25% of its limit for that: 8 of 10 tokens are left, it gets 10 tokens in 96h0m0s, and they may take global to 10 below zero",
		"acme:mail:high":   "", "acme:mail": "",
	} {
		e, err := explain.New(t.Context(), s.store, explain.Scope, scope, shown.Everything)
		must(t, err)
		found := ""
		for _, r := range e.Reasons {
			if r.Kind == explain.KindBypass {
				if found = r.Text; r.Binds || r.Rule == nil || r.Rule.Path != "/bypass" {
					t.Errorf("%s: %+v", scope, r)
				}
			}
		}
		if found != want {
			t.Errorf("of %s it says %q, want %q", scope, found, want)
		}
	}
}
