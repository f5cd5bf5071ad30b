package admin_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
)

// TestLimitsOfTypesOverHTTP: a job is told its type's bucket, and a refusal that it was that; status and config read it, a reset fills it, and what a job has
// cost goes back into it.
func TestLimitsOfTypesOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tiers":{"standard":{"limit":{"enabled":false}}},"queues":{"mail":{"each_tenant":{"type_limits":{"report":{"tokens":1,"per":"24h","burst":30}}}}}}`})
	job := func(id string, cost int) ask {
		return ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"report","id":%q,"cost":%d}`, id, cost)}
	}
	scope := map[string]string{"scope": "acme:mail:type=report"}
	wantLeft := func(want float64) {
		t.Helper()
		got := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: scope}).object(t)
		if left, _ := got["current_tokens"].(float64); left < want || left > want+1 {
			t.Errorf("%v tokens are left, want %v: %v", left, want, got)
		}
	}
	in := p.want(http.StatusCreated, "operator", job("a", 20))
	if told := in.header.Get("Ratelimit-Policy"); told != `"acme:mail:type=report";q=1;w=86400;headgate-burst=30` {
		t.Errorf("a job is told %q", told)
	}
	wantLeft(10)
	no := p.want(http.StatusTooManyRequests, "operator", job("b", 20))
	if got := no.object(t); got["scope"] != "acme:mail:type=report" || got["reason"] != "limited" || no.header.Get("Retry-After") == "" {
		t.Errorf("%v %s", no.header, no.body)
	}
	if told := no.header.Get("Ratelimit"); !bytes.HasPrefix([]byte(told), []byte(`"acme:mail:type=report";r=10;t=`)) {
		t.Errorf("a refused job is told %q", told)
	}
	c := p.client("1m")
	c.end(http.StatusOK, "complete", c.collect(1)[0], `,"cost":5`)
	wantLeft(25)
	config := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/config/{scope}", path: scope}).object(t)
	rule, _ := config["rule"].(map[string]any)
	if force, _ := config["in_force"].(map[string]any); force["burst"] != 30.0 || rule["path"] != "/queues/mail/each_tenant/type_limits/report" || config["own"] != nil {
		t.Errorf("%v", config)
	}
	p.want(http.StatusNoContent, "admin", ask{op: "POST /api/v1/rate-limit/reset/{scope}", path: scope})
	wantLeft(30)
	p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme:mail","tokens":1000}`}) // It asks no type.
	wantLeft(30)
}
