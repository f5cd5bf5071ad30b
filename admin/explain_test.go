package admin_test

import (
	"net/http"
	"strings"
	"testing"
)

func walkExplain(p *plant) {
	explain := func(status int, kind, name string) map[string]any {
		return p.want(status, "viewer", ask{op: "GET /api/v1/explain/{kind}/{name}", path: map[string]string{"kind": kind, "name": name}}).object(p.tb)
	}
	p.put("operator", ask{op: "PUT /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "acme:mail"}, body: `{"tokens":1,"per":"24h","burst":1}`, query: "reason=strict"})
	p.enqueue("acme", "e/1")
	for kind, name := range map[string]string{"tenant": "acme", "downstream": "smtp", "scope": "global", "queue": "mail"} {
		if got := explain(http.StatusOK, kind, name); got["kind"] != kind || got["name"] != name {
			p.tb.Errorf("%v", got)
		}
	}
	job := explain(http.StatusOK, "job", "acme:e/1")
	if reasons, _ := job["reasons"].([]any); len(reasons) == 0 || !strings.Contains(job["summary"].(string), "waiting") {
		p.tb.Errorf("%v", job)
	}
	scope := explain(http.StatusOK, "scope", "acme:mail")
	reasons, _ := scope["reasons"].([]any)
	last, _ := reasons[len(reasons)-1].(map[string]any)
	rule, _ := last["rule"].(map[string]any)
	changed, _ := rule["changed"].(map[string]any)
	if last["binds"] != true || last["until"] == nil || rule["path"] != "/queue_limits/acme:mail" || changed["author"] != "operator" || changed["reason"] != "strict" {
		p.tb.Errorf("%v", scope)
	}
	explain(http.StatusNotFound, "job", "acme:never")
	explain(http.StatusBadRequest, "lane", "mail")
	explain(http.StatusNotFound, "queue", "nobody")
	explain(http.StatusBadRequest, "job", "acme")
	p.put("operator", ask{op: "DELETE /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "acme:mail"}})
	p.want(http.StatusOK, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "e/1"}})
}

// TestWhatIsKeptOfTheGlobalLimitIsShown: with what others have, and refusals of theirs say so.
func TestWhatIsKeptOfTheGlobalLimitIsShown(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"global":{"tokens":10,"per":"24h","burst":8},"global_reserved":{"classes":["high"],"percent":75}}`})
	config := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "global"}})
	if want := `"reserved":{"classes":["high"],"percent":75,"others":{"tokens":10,"per_ms":345600000,"burst":2}}`; !strings.Contains(string(config.body), want) {
		t.Errorf("%s, want %s", config.body, want)
	}
	const checkOp = "POST /api/v1/rate-limit/check"
	p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme:mail:low","tokens":2}`})
	if refused := p.want(http.StatusTooManyRequests, "operator", ask{op: checkOp, body: `{"scope":"acme:mail","tokens":1}`}); !strings.Contains(string(refused.body), `"refused_by":"global"`) {
		t.Errorf("%s", refused.body)
	}
	p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme:mail:high","tokens":6}`})
}

// TestATenantHasItsJobsExplained: its own, and nothing else, without what operators noted and without rules.
func TestATenantHasItsJobsExplained(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "one")
	p.enqueue("zeta", "two")
	p.want(http.StatusOK, "operator", ask{op: "PUT /api/v1/tenants/{tenant}/pause", path: map[string]string{"tenant": "acme"}, body: `{"reason":"contract ended"}`})
	explain := func(status int, who, kind, name string) string {
		return string(p.want(status, who, ask{op: "GET /api/v1/explain/{kind}/{name}", path: map[string]string{"kind": kind, "name": name}}).body)
	}
	if own := explain(http.StatusOK, "acme-viewer", "job", "acme:one"); !strings.Contains(own, "an operator holds it back") || strings.Contains(own, "contract") || strings.Contains(own, `"rule"`) {
		t.Error(own)
	}
	if all := explain(http.StatusOK, "viewer", "job", "acme:one"); !strings.Contains(all, "contract ended") {
		t.Error(all)
	}
	explain(http.StatusNotFound, "acme-viewer", "job", "zeta:two")
	explain(http.StatusNotFound, "acme-viewer", "job", "acme:never")
	for kind, name := range map[string]string{"tenant": "acme", "scope": "acme:mail", "downstream": "acme"} {
		explain(http.StatusForbidden, "acme-admin", kind, name)
	}
}

// TestWhenReservationsExpireIsExplained: of a queue and of a tenant, with the line of the policy that says so.
func TestWhenReservationsExpireIsExplained(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"reservations":{"expire_after":"90s"},"queues":{"mail":{"reservations":{"expire_after":"10m"}}}}`})
	p.enqueue("acme", "one")
	for _, c := range []struct{ kind, name, text, path string }{
		{"queue", "mail", "expires after 10m", "/queues/mail/reservations/expire_after"},
		{"tenant", "acme", "expires after 1m30s", "/reservations/expire_after"},
	} {
		got := string(p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/explain/{kind}/{name}", path: map[string]string{"kind": c.kind, "name": c.name}}).body)
		for _, want := range []string{`"kind":"reservation"`, c.text, `"path":"` + c.path + `"`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s %s: %q is missing in %s", c.kind, c.name, want, got)
			}
		}
	}
}
