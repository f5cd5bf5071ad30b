package explain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
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

// TestExplainTellsWhoseCapAJobWaitsFor: the record's, or that of the tier which the record names.
func TestExplainTellsWhoseCapAJobWaitsFor(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		record          policy.OwnLimits
		of, path, value string
		change          string
		shown           int
	}{
		"its own":     {policy.OwnLimits{Tier: "gold", MaxRunning: 1}, "record of tenant acme", "/max_running", "1", "record", 1},
		"its tier's":  {policy.OwnLimits{Tier: "gold"}, "default of tier gold", "/tiers/gold/max_running", "2", "tenant", 2},
		"the other's": {policy.OwnLimits{Tier: "tin"}, "default of tier tin", "/tiers/tin/max_running", "3", "tenant", 3},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.put(`{"tenant_records": true, "tenants": {"acme": {"tier": "standard"}}, "tiers": {"standard": {"limit": {"enabled": false}}, "tin": {"limit": {"enabled": false}, "max_running": 3},
				"gold": {"limit": {"enabled": false}, "max_running": 2}}}`, "tiers")
			s.capped(row.record, explain.Rule{Of: row.of, Path: row.path, Value: json.RawMessage(row.value)}, "jobs that end, or headgate "+row.change+" set acme --max-running NUMBER")
			current, err := rollout.Current(t.Context(), s.store)
			must(t, err)
			if v, err := shown.ReadTenant(t.Context(), s.store, current, "acme", shown.Everything); err != nil || v.MaxRunning != row.shown {
				t.Errorf("the tenant is shown with %d at a time, want %d: %v", v.MaxRunning, row.shown, err)
			}
		})
	}
}

// record gives tenant acme a record.
func (s *stage) record(record policy.OwnLimits) {
	s.t.Helper()
	read := func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, s.store) }
	_, err := rollout.EditRecord(s.t.Context(), s.store, read, "acme", rollout.Edit{Expected: rollout.AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return record, nil })
	must(s.t, err)
}

// capped has a job wait for a cap of a tenant with a record, and fails where it is not told that rule and what would change it.
func (s *stage) capped(record policy.OwnLimits, want explain.Rule, change string) {
	s.t.Helper()
	s.record(record)
	s.work(9, 0, "")
	for _, id := range []string{"a", "b", "c", "d"} {
		s.enqueue(id)
	}
	e, err := explain.New(s.t.Context(), s.store, explain.Job, "acme:d", shown.Everything)
	must(s.t, err)
	i := slices.IndexFunc(e.Reasons, func(r explain.Reason) bool { return r.Rule != nil && r.Rule.Of == want.Of })
	if i < 0 || e.Reasons[i].Rule.Path != want.Path || string(e.Reasons[i].Rule.Value) != string(want.Value) || e.Reasons[i].Change != change {
		s.t.Errorf("%+v, want %s of %s at %s", e.Reasons, want.Value, want.Of, want.Path)
	}
}

// TestExplainTellsWhoseCapInAQueueAJobWaitsFor: the record's, or the policy's of the tenant there, or that of each tenant there.
func TestExplainTellsWhoseCapInAQueueAJobWaitsFor(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		record                  policy.OwnLimits
		own                     string
		of, path, value, change string
	}{
		"the record's": {policy.OwnLimits{MaxRunningIn: map[string]int{"mail": 1}}, `{"acme:mail": 2}`, "record of tenant acme", "/queues/mail/max_running", "1", "headgate record set acme:mail --max-running NUMBER"},
		"the policy's": {policy.OwnLimits{MaxRunningIn: map[string]int{"fax": 1}}, `{"acme:mail": 2}`, "override of acme:mail", "/max_running/acme:mail", "2", `headgate policy merge FILE, with {"max_running": {"acme:mail": NUMBER}}`},
		"each one's":   {policy.OwnLimits{MaxRunningIn: map[string]int{"fax": 1}}, `{}`, "default of queue mail", "/queues/mail/max_running_per_tenant", "3", "headgate queue set mail --max-running-per-tenant NUMBER"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.put(`{"tenant_records": true, "tiers": {"standard": {"limit": {"enabled": false}}}, "queues": {"mail": {"max_running_per_tenant": 3}}, "max_running": `+row.own+`}`, "caps")
			s.capped(row.record, explain.Rule{Of: row.of, Path: row.path, Value: json.RawMessage(row.value)}, "jobs that end, or "+row.change)
		})
	}
}

// TestExplainGoesByTheTierOfARecord: of the tenant, of the turn of its jobs and of the bound of their depth, and names the record or the tier that decides.
func TestExplainGoesByTheTierOfARecord(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.put(`{"tenant_records": true, "tenants": {"acme": {"tier": "tin"}}, "tiers": {"standard": {"limit": {"enabled": false}}, "tin": {"limit": {"enabled": false}, "priority_weights": {"high": 2}},
		"gold": {"limit": {"enabled": false}, "priority_weights": {"high": 5}, "queues": {"mail": {"overflow": {"policy": "spillover", "max_jobs": 3}}}}}}`, "tiers")
	read := func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, s.store) }
	_, err := rollout.EditRecord(t.Context(), s.store, read, "acme", rollout.Edit{Expected: rollout.AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) {
		return policy.OwnLimits{Tier: "gold", Weights: policy.Weights{admission.Medium: 7}}, nil
	})
	must(t, err)
	s.work(1, 0, "")
	s.enqueue("a")
	s.enqueue("b")
	s.enqueue("c", func(j *admission.Job) { j.Priority = admission.High })
	s.enqueue("d")
	for _, want := range []struct{ kind, name, reason, of, value string }{
		{explain.Tenant, "acme", explain.KindTier, "record of tenant acme", `"gold"`},
		{explain.Job, "acme:b", "turn", "record of tenant acme", "7"},
		{explain.Job, "acme:c", "turn", "default of tier gold", "5"},
		{explain.Job, "acme:d", "depth", "default of tier gold in queue mail", `"spillover"`},
	} {
		e, err := explain.New(t.Context(), s.store, want.kind, want.name, shown.Everything)
		must(t, err)
		i := slices.IndexFunc(e.Reasons, func(r explain.Reason) bool { return r.Kind == want.reason })
		if i < 0 || e.Reasons[i].Rule == nil || e.Reasons[i].Rule.Of != want.of || !strings.Contains(string(e.Reasons[i].Rule.Value), want.value) {
			t.Errorf("%s %s: %+v, want a %s by %s with %s", want.kind, want.name, e.Reasons, want.reason, want.of, want.value)
		}
	}
}

// TestExplainTellsWhoseRateAJobWaitsFor: the record's, or the policy's where it says nothing.
func TestExplainTellsWhoseRateAJobWaitsFor(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		record              policy.OwnLimits
		of, path, set, text string
	}{
		"the record's": {policy.OwnLimits{Dispatch: new(admission.PerHour(7).WithBurst(1))}, "record of tenant acme", "/dispatch", "record", "7 jobs an hour"},
		"the policy's": {policy.OwnLimits{MaxRunning: 100}, "tenant acme", "/tenants/acme/dispatch", "tenant", "3 jobs an hour"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.put(`{"tenant_records": true, "tiers": {"standard": {"limit": {"enabled": false}}}, "tenants": {"acme": {"dispatch": {"tokens": 3, "per": "1h", "burst": 1}}}}`, "rates")
			read := func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, s.store) }
			_, err := rollout.EditRecord(t.Context(), s.store, read, "acme", rollout.Edit{Expected: rollout.AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return row.record, nil })
			must(t, err)
			s.work(9, 0, "")
			for _, id := range []string{"a", "b"} {
				s.enqueue(id)
			}
			e, err := explain.New(t.Context(), s.store, explain.Job, "acme:b", shown.Everything)
			must(t, err)
			i := slices.IndexFunc(e.Reasons, func(r explain.Reason) bool { return r.Kind == string(store.WaitRate) })
			if i < 0 || e.Reasons[i].Rule == nil || e.Reasons[i].Rule.Of != row.of || e.Reasons[i].Rule.Path != row.path || !strings.Contains(e.Reasons[i].Text, row.text) ||
				!strings.Contains(e.Reasons[i].Change, "headgate "+row.set+" set acme --dispatch NUMBER") {
				t.Errorf("%+v, want that of %s", e.Reasons, row.of)
			}
			current, err := rollout.Current(t.Context(), s.store)
			must(t, err)
			if v, err := shown.ReadTenant(t.Context(), s.store, current, "acme", shown.Everything); err != nil || v.Dispatch == nil || v.Dispatch.Burst != 1 || !strings.HasPrefix(row.text, fmt.Sprint(v.Dispatch.Tokens, " ")) {
				t.Errorf("the tenant is shown with %+v, want %s: %v", v.Dispatch, row.text, err)
			}
		})
	}
}

// TestExplainTellsOfTheBoundOfARecord: a job that is kept aside by what the record of its tenant says of the queue is told so, and one of another queue is not.
func TestExplainTellsOfTheBoundOfARecord(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.put(`{"tenant_records": true, "tiers": {"standard": {"limit": {"enabled": false}}}, "overflows": {"acme:mail": {"policy": "reject", "max_jobs": 1}}}`, "bounds")
	read := func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, s.store) }
	_, err := rollout.EditRecord(t.Context(), s.store, read, "acme", rollout.Edit{Expected: rollout.AnyVersion}, func(r policy.OwnLimits) (policy.OwnLimits, error) {
		return r.WithOverflow("mail", policy.Overflow{Policy: policy.Spillover, MaxJobs: 2}).WithOverflow("", policy.Overflow{Policy: policy.Reject, MaxJobs: 9}), nil
	})
	must(t, err)
	for _, id := range []string{"a", "b", "c"} {
		s.enqueue(id)
	}
	e, err := explain.New(t.Context(), s.store, explain.Job, "acme:c", shown.Everything)
	must(t, err)
	i := slices.IndexFunc(e.Reasons, func(r explain.Reason) bool { return r.Kind == "depth" })
	if i < 0 || e.Reasons[i].Rule == nil || e.Reasons[i].Rule.Of != "record of tenant acme" || e.Reasons[i].Rule.Path != "/queues/mail/overflow" || !strings.Contains(string(e.Reasons[i].Rule.Value), `"max_jobs":2`) {
		t.Errorf("%+v", e.Reasons)
	}
}

// TestATenantHearsNoNoteOfACancel: why an operator cancels a job that runs is for those who see the deployment.
func TestATenantHearsNoNoteOfACancel(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.enqueue("a")
	s.work(1, 1, "")
	key := admission.Key{Tenant: "acme", ID: "a"}
	_, _, err := s.store.Cancel(t.Context(), key, store.Intervention{Author: "ada", Reason: "contract ended"})
	must(t, err)
	for note, eyes := range map[string]shown.Eyes{"": {Texts: true}, "contract ended": shown.Everything} {
		told, err := explain.New(t.Context(), s.store, explain.Job, "acme:a", eyes)
		must(t, err)
		if !strings.Contains(told.Summary, "to be cancelled") || strings.Contains(told.Summary, "contract") != (note != "") {
			t.Errorf("%+v are told %q", eyes, told.Summary)
		}
		sight, err := s.store.Look(t.Context(), key)
		must(t, err)
		if job := shown.JobOf(sight, eyes); !job.Cancelled || job.Reason != note {
			t.Errorf("%+v are told of %q, want %q", eyes, job.Reason, note)
		}
	}
}
