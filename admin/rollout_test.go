package admin_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/headgate/headgate/policy"
)

func walkRollout(p *plant) {
	const rules = `{"id":"raise","percent":30,"rules":{"tiers":{"standard":{"limit":{"tokens":9,"per":"1s","burst":9},"priority_weights":{"high":2}}}}}`
	see, end := ask{op: "GET /api/v1/policy/rollout"}, ask{op: "DELETE /api/v1/policy/rollout", query: "reason=enough"}
	begin := ask{op: "PUT /api/v1/policy/rollout", body: rules, query: "reason=raise"}
	p.want(http.StatusNotFound, "viewer", see)
	p.want(http.StatusPreconditionRequired, "admin", begin)
	end.header = from(p.inForce())
	p.want(http.StatusNotFound, "admin", end)
	p.put("admin", begin)
	if seen := p.want(http.StatusOK, "viewer", see); seen.object(p.tb)["percent"] != 30.0 || seen.header.Get("Etag") != p.inForce() {
		p.tb.Errorf("%s", seen.body)
	}
	other := ask{op: begin.op, body: string(bytes.Replace([]byte(rules), []byte("raise"), []byte("other"), 1)), header: from(p.inForce())}
	p.want(http.StatusConflict, "admin", other)
	for _, bad := range []string{`{"percent":101}`, `{}`} {
		p.want(http.StatusBadRequest, "admin", ask{op: "POST /api/v1/policy/rollout/share", body: bad, header: from(p.inForce())})
	}
	p.put("admin", ask{op: "POST /api/v1/policy/rollout/share", body: `{"percent":60}`, query: "reason=more"})
	if seen := p.want(http.StatusOK, "viewer", see); seen.object(p.tb)["percent"] != 60.0 {
		p.tb.Errorf("%s", seen.body)
	}
	p.put("admin", end)
	p.put("admin", begin)
	p.put("admin", ask{op: "POST /api/v1/policy/rollout/promote", query: "reason=done"})
	p.want(http.StatusNotFound, "viewer", see)
	tier := ask{op: "GET /api/v1/tiers/{tier}", path: map[string]string{"tier": "standard"}}
	if seen := p.want(http.StatusOK, "viewer", tier); !bytes.Contains(seen.body, []byte(`"burst":9`)) {
		p.tb.Errorf("%s", seen.body)
	}
	for i, want := range []string{"done", "raise", "enough", "more", "raise"} {
		entry := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/audit", query: "limit=5"}).object(p.tb)["entries"].([]any)[i].(map[string]any)
		if entry["reason"] != want {
			p.tb.Errorf("%v, want %s", entry, want)
		}
	}
	p.want(http.StatusNotFound, "viewer", ask{op: "GET /api/v1/policy/rollout/shadow"})
	p.put("admin", ask{op: begin.op, body: `{"id":"strict","percent":100,"shadow":true,"rules":{"tenants":{"acme":{"limit":{"tokens":1,"per":"1h","burst":1}}}}}`})
	p.enqueue("acme", "x1", "x2", "x3")
	seen := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/policy/rollout/shadow"}).object(p.tb)
	if refused := seen["refused"].(map[string]any); seen["allowed"] != 1.0 || refused["tenant"] != 2.0 || refused["global"] != 0.0 {
		p.tb.Errorf("%v", seen)
	}
	for _, id := range []string{"x1", "x2", "x3"} {
		p.want(http.StatusOK, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": id}})
	}
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{}`})
}

// TestTenantsOfARolloutAreLimitedByIt: what the API decides, and shows of a tenant, is what its side of the share says.
func TestTenantsOfARolloutAreLimitedByIt(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy/rollout", body: `{"id":"raise","percent":50,"rules":{"tiers":` +
		`{"standard":{"limit":{"tokens":3,"per":"1h","burst":3},"priority_weights":{"high":2}}}}}`})
	share, in := policy.Rollout{ID: "raise", Percent: 50}, 0
	for i := range 20 {
		tenant, want := fmt.Sprintf("tenant-%d", i), `"burst":50`
		if share.Has(tenant) {
			want = `"burst":3`
			in++
		}
		scope := map[string]string{"scope": tenant}
		for _, op := range []string{"GET /api/v1/rate-limit/config/{scope}", "GET /api/v1/rate-limit/status/{scope}"} {
			if seen := p.want(http.StatusOK, "viewer", ask{op: op, path: scope}); !bytes.Contains(seen.body, []byte(want)) {
				t.Errorf("%s (in: %t): %s", tenant, share.Has(tenant), seen.body)
			}
		}
	}
	if in == 0 || in == 20 {
		t.Errorf("%d of 20 are in", in)
	}
}
