package admin_test

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// acts are the calls that change something as an operator, in an order in which each has something to change, with what the audit
// calls it. An action of "" leaves no entry; the reason stands beside it.
var acts = []struct {
	op, body, action string
	path             map[string]string
	before           func(p *plant)
	edit             bool   // sends If-Match
	any              bool   // sends If-Match of whatever there is
	reason           string // as it is told, where that is not as it was given
}{
	{op: "PUT /api/v1/queues/{queue}/pause", body: `{"for":"1h","reason":"why"}`, action: "pause"},
	{op: "DELETE /api/v1/queues/{queue}/pause", action: "unpause"},
	{op: "PUT /api/v1/queues/{queue}/suspension", body: `{"reason":"why"}`, action: "suspend"},
	{op: "DELETE /api/v1/queues/{queue}/suspension", action: "resume"},
	{op: "POST /api/v1/queues/{queue}/drain", action: "drain", before: seen},
	{op: "DELETE /api/v1/queues/{queue}/suspension", action: "resume"},
	{op: "PUT /api/v1/tenants/{tenant}/pause", body: `{"reason":"why"}`, action: "pause"},
	{op: "DELETE /api/v1/tenants/{tenant}/pause", action: "unpause"},
	{op: "PUT /api/v1/tenants/{tenant}/suspension", body: `{"reason":"why"}`, action: "suspend"},
	{op: "DELETE /api/v1/tenants/{tenant}/suspension", action: "resume"},
	{op: "PUT /api/v1/tenants/{tenant}/queues/{queue}/pause", body: `{"reason":"why"}`, action: "pause"},
	{op: "DELETE /api/v1/tenants/{tenant}/queues/{queue}/pause", action: "unpause"},
	{op: "PUT /api/v1/tenants/{tenant}/queues/{queue}/suspension", body: `{"reason":"why"}`, action: "suspend"},
	{op: "DELETE /api/v1/tenants/{tenant}/queues/{queue}/suspension", action: "resume"},
	{op: "POST /api/v1/dead-letters/redrive", body: `{"keys":[{"tenant":"acme","id":"one"}],"reason":"why"}`, action: "redrive", before: letter},
	{op: "DELETE /api/v1/jobs/{tenant}/{id}", action: "cancel"},
	{op: "POST /api/v1/dead-letters/redrive", body: `{"keys":[{"tenant":"acme","id":"two"}],"without_limits":true,"reason":"why"}`, action: "redrive_without_limits", before: letter},
	{op: "POST /api/v1/queues/{queue}/purge", body: `{"confirm":"mail","reason":"why"}`, action: "purge_queue"},
	{op: "POST /api/v1/dead-letters/purge", body: `{"keys":[{"tenant":"acme","id":"three"}],"reason":"why"}`, action: "purge", before: letter},
	{op: "POST /api/v1/breakers/{downstream}/force", body: `{"state":"open","reason":"why"}`, action: "open"},
	{op: "POST /api/v1/breakers/{downstream}/reset", body: `{"reason":"why"}`, action: "reset"},
	{op: "PUT /api/v1/tenants/{tenant}", body: `{"tier":"basic","limit":{"tokens":1,"per":"1h","burst":9}}`, action: "policy", edit: true}, // of which nothing comes back before it is reset
	{op: "POST /api/v1/rate-limit/reset/{scope}", action: "reset_bucket", before: charged},
	{op: "DELETE /api/v1/tenants/{tenant}", action: "policy", edit: true},
	{op: "PUT /api/v1/rate-limit/config/{scope}", body: `{"tokens":5,"per":"1s","burst":5}`, action: "policy", edit: true},
	{op: "DELETE /api/v1/rate-limit/config/{scope}", action: "policy", edit: true},
	{op: "PUT /api/v1/tiers/{tier}", body: `{"limit":{"tokens":1,"per":"1s","burst":1}}`, action: "policy", edit: true},
	{op: "DELETE /api/v1/tiers/{tier}", action: "policy", edit: true},
	{op: "PUT /api/v1/queues/{queue}/settings", body: `{"max_running":5}`, action: "policy", edit: true},
	{op: "DELETE /api/v1/queues/{queue}/settings", action: "policy", edit: true},
	{op: "PUT /api/v1/downstreams/{downstream}", body: `{"max_running":5}`, action: "policy", edit: true},
	{op: "DELETE /api/v1/downstreams/{downstream}", action: "policy", edit: true},
	{op: "PUT /api/v1/triggers/{trigger}", body: `{"when":{"metric":"queue_depth","above":9},"do":"pause","of":"queue mail"}`, action: "policy", edit: true, before: loading},
	{op: "DELETE /api/v1/triggers/{trigger}", action: "policy", edit: true},
	{op: "PUT /api/v1/policy", body: `{}`, action: "policy", edit: true},
	{op: "POST /api/v1/policy/rollback", body: `{"version":1,"reason":"why"}`, action: "policy", edit: true},
	{op: "PUT /api/v1/policy/rollout", body: `{"id":"next","percent":5,"rules":{"tiers":{"standard":{"limit":{"tokens":9,"per":"1s","burst":9},"priority_weights":{"high":2}}}}}`, action: "policy", edit: true},
	{op: "POST /api/v1/policy/rollout/share", body: `{"percent":9}`, action: "policy", edit: true},
	{op: "POST /api/v1/policy/rollout/promote", action: "policy", edit: true},
	{op: "PUT /api/v1/policy/rollout", body: `{"id":"next","percent":5,"rules":{"tiers":{"standard":{"limit":{"tokens":9,"per":"1s","burst":9},"priority_weights":{"high":2}}}}}`, action: "policy", edit: true},
	{op: "DELETE /api/v1/policy/rollout", action: "policy", edit: true},
	{op: "PUT /api/v1/adaptive/{name}/freeze", body: `{"reason":"why"}`, action: "freeze", before: moving},
	{op: "DELETE /api/v1/adaptive/{name}/freeze", action: "thaw"},
	{op: "PUT /api/v1/adaptive/{name}/override", body: `{"limit":12,"for":"10m","reason":"why"}`, action: "override"},
	{op: "DELETE /api/v1/adaptive/{name}/override", action: "override_end"},
	{op: "PUT /api/v1/rate-limit/scale/{scope}", body: `{"part":0.5,"for":"10m","reason":"why"}`, action: "scale", reason: "to 0.5: why"},
	{op: "DELETE /api/v1/rate-limit/scale/{scope}", action: "scale_end"},
	{op: "PUT /api/v1/records/{tenant}", body: `{"limit":{"tokens":9,"per":"1s"}}`, action: "tenant_record", any: true, before: func(p *plant) { recording(p) }},
	{op: "DELETE /api/v1/records/{tenant}", action: "tenant_record_gone", any: true},
}

// work of applications and of workers, and questions: they change nothing that an operator would be asked about.
var unaudited = []string{
	"POST /api/v1/jobs", "POST /api/v1/jobs/batch", "POST /api/v1/rate-limit/check", "POST /api/v1/rate-limit/reserve", "POST /api/v1/rate-limit/commit",
	"POST /api/v1/rate-limit/cancel", "POST /api/v1/semaphores/{name}/acquire", "POST /api/v1/semaphores/{name}/extend", "POST /api/v1/semaphores/{name}/release", "POST /api/v1/policy/dry-run", "POST /api/v1/records/{tenant}/dry-run", "POST /api/v1/triggers/{trigger}/dry-run", "POST /api/v1/workers",
}

// moving lets the limit of a downstream move.
func moving(p *plant) {
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"downstreams":{"smtp":{"max_running":40}},"adaptive":{"mail-out":{"of":"downstream smtp","min":5}}}`})
}

// loading has workers tell how busy they are, without which there are no triggers.
func loading(p *plant) { p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"load":{}}`}) }

// seen lets the queue be known.
func seen(p *plant) {
	_, err := p.store.Partitions()[0].Register(p.tb.Context(), "w1", mailPool, 1, time.Minute)
	must(p.tb, err)
}

func letter(p *plant) {
	n := 0
	for _, id := range []string{"one", "two", "three"} {
		if reply := p.call("admin", ask{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": id}}); reply.status == http.StatusNotFound {
			p.enqueue("acme", id)
			n++
		}
	}
	p.work(p.tb.Context(), n, store.Kill)
}

func charged(p *plant) {
	p.want(http.StatusOK, "admin", ask{op: "POST /api/v1/rate-limit/check", body: `{"checks":[{"scope":"acme"}]}`})
}

// TestEveryActOverHTTPIsAudited makes every call that changes something, as two credentials of which the second is of one tenant,
// and finds each in the audit by its name; every other route is known to be none of an operator's.
func TestEveryActOverHTTPIsAudited(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	newest := func(query string) map[string]any {
		entries, _ := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/audit", query: query}).object(t)["entries"].([]any)
		if len(entries) == 0 {
			return nil
		}
		entry, _ := entries[0].(map[string]any)
		return entry
	}
	done := map[string]bool{}
	for _, act := range acts {
		if act.before != nil {
			act.before(p)
		}
		a := ask{op: act.op, body: act.body, path: map[string]string{
			"queue": "mail", "tenant": "acme", "id": "one", "scope": "acme", "downstream": "smtp", "tier": "extra", "name": "mail-out", "trigger": "deep",
		}}
		if act.body == "" || act.any {
			a.query = "reason=why"
		}
		if act.any {
			a.header = http.Header{"If-Match": {"*"}}
		}
		if act.edit {
			if !strings.Contains(act.body, `"why"`) {
				a.query = "reason=why"
			}
			p.put("admin", a)
		} else if got := p.call("admin", a); got.status >= 300 {
			t.Fatalf("%s: %d %s", act.op, got.status, got.body)
		}
		done[act.op] = true
		entry := newest("limit=1")
		if entry["action"] != act.action || entry["author"] != "admin" || entry["reason"] != cmp.Or(act.reason, "why") {
			t.Errorf("%s is told as %v", act.op, entry)
		}
		if found := newest("limit=1&author=admin&action=" + act.action); found["at"] != entry["at"] {
			t.Errorf("%s: the filters find %v", act.op, found)
		}
	}
	for _, op := range p.operations() {
		quiet := strings.HasPrefix(op, "GET ") || strings.HasPrefix(op, "HEAD ") || strings.HasPrefix(op, "POST /api/v1/workers/") ||
			strings.HasPrefix(op, "DELETE /api/v1/workers/") || slices.Contains(unaudited, op)
		if done[op] == quiet {
			t.Errorf("%s: audited %t, exempt %t", op, done[op], quiet)
		}
	}
	before := newest("limit=1")["at"]
	p.enqueue("acme", "own")
	p.want(http.StatusOK, "acme-admin", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "own"}})
	if after := newest("limit=1"); after["at"] != before {
		t.Errorf("a tenant's own act is told: %v", after)
	}
}

// TestHoldsOverHTTP: rates and bursts are as described, and a pause says who set it and since when.
func TestHoldsOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"downstreams":{"smtp":{"dispatch":{"tokens":5,"per":"1s","burst":2},"max_running":3}}}`})
	mail := map[string]string{"queue": "mail"}
	p.want(http.StatusOK, "operator", ask{op: "PUT /api/v1/queues/{queue}/pause", path: mail, body: `{"reason":"house"}`})
	p.want(http.StatusOK, "operator", ask{op: "PUT /api/v1/queues/{queue}/suspension", path: mail, body: `{"for":"1m","reason":"house"}`})
	holds := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/holds"}).object(t)
	found := map[string]map[string]any{}
	for _, list := range []string{"gates", "suspensions"} {
		all, _ := holds[list].([]any)
		for _, one := range all {
			hold, _ := one.(map[string]any)
			found[list+" "+hold["name"].(string)] = hold
		}
	}
	if rate := found["gates s:smtp"]; rate["burst"] != 2.0 || rate["rate"] != 5.0 || rate["author"] != nil {
		t.Errorf("%v", rate)
	}
	for _, name := range []string{"gates q:mail", "suspensions q:mail"} {
		if hold := found[name]; hold["author"] != "operator" || hold["since"] == nil || hold["reason"] != "house" {
			t.Errorf("%s: %v", name, hold)
		}
	}
	if found["gates q:mail"]["paused"] != true || found["gates d:smtp"]["paused"] != nil {
		t.Errorf("%v", found)
	}
}
