package headgate_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store/redisstore"
)

// TestAnExplanationIsForPrograms: its findings are told apart by constants, and as JSON it is what the admin API answers.
func TestAnExplanationIsForPrograms(t *testing.T) {
	t.Parallel()
	ctx, prefix := t.Context(), redistest.Prefix(t)
	s, err := redisstore.Open(ctx, redistest.Shared(t).Client(t), redisstore.Config{Prefix: prefix})
	check(t, err)
	hg, err := headgate.OpenStore(s, headgate.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, hg.Close()) })
	check(t, hg.Policy().Change(ctx, headgate.Edit{Author: "ada", Reason: "gold"}, func(p *headgate.Policy) { p.Tenant("acme").Tier = "premium" }))
	_, err = hg.Operate("bob").Pause(ctx, headgate.Tenant("acme"), headgate.For(time.Hour, "unpaid"))
	check(t, err)
	_, err = hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{}, ID: "a", Deadline: time.Now().Add(time.Hour)})
	check(t, err)
	job, err := hg.Inspect().Explain(ctx, headgate.Key{Tenant: "acme", ID: "a"})
	check(t, err)
	kinds := map[headgate.FindingKind]headgate.Finding{}
	for _, c := range job.Reasons {
		kinds[c.Kind] = c
	}
	if c := kinds[headgate.FindingPause]; !c.Binds || c.Until.IsZero() || c.Text != "tenant acme is paused by bob: unpaid" || c.Change != "headgate resume --tenant acme" {
		t.Errorf("%+v", c)
	}
	if c := kinds[headgate.FindingDeadline]; c.Binds || c.Until.IsZero() || !kinds[headgate.FindingWorkers].Binds {
		t.Errorf("%+v", kinds)
	}
	tenant, err := hg.Inspect().ExplainTenant(ctx, "acme")
	check(t, err)
	for _, c := range tenant.Reasons {
		if r := c.Rule; c.Kind == headgate.FindingTier && (r == nil || r.Path != "/tenants/acme/tier" || r.Changed == nil || r.Changed.Author != "ada" || r.Changed.Version != 1) {
			t.Errorf("%+v", r)
		}
	}
	_, err = hg.Operate("bob").Pause(ctx, headgate.Queue("mail"), headgate.For(time.Hour, "provider migrates"))
	check(t, err)
	check(t, hg.Operate("bob").OpenBreaker(ctx, "smtp", headgate.For(time.Hour, "it is down")))
	queue, err := hg.Inspect().ExplainQueue(ctx, "mail")
	check(t, err)
	downstream, err := hg.Inspect().ExplainDownstream(ctx, "smtp")
	check(t, err)
	scope, err := hg.Inspect().ExplainScope(ctx, "acme:mail")
	check(t, err)
	for kind, c := range map[headgate.FindingKind]struct {
		of   headgate.Explanation
		says string
	}{
		headgate.FindingPause: {queue, "provider migrates"}, headgate.FindingBreaker: {downstream, "it is down"}, headgate.FindingLimit: {scope, "acme"},
	} {
		found := false
		for _, r := range c.of.Reasons {
			found = found || r.Kind == kind && strings.Contains(r.Text, c.says)
		}
		if !found {
			t.Errorf("%s %s has no %s of %q: %+v", c.of.Kind, c.of.Name, kind, c.says, c.of.Reasons)
		}
	}
	job, err = hg.Inspect().Explain(ctx, headgate.Key{Tenant: "acme", ID: "a"})
	check(t, err)
	inner, err := explain.New(ctx, s, explain.Job, "acme:a", shown.Everything)
	check(t, err)
	want, _ := json.Marshal(inner)
	got, _ := json.Marshal(job)
	if string(got) != string(want) {
		t.Errorf("as JSON\n%s\nand over HTTP\n%s", got, want)
	}
	if !strings.HasPrefix(job.String(), "job acme:a: waiting") || job.Kind != "job" || job.Name != "acme:a" {
		t.Errorf("%+v", job)
	}
}
