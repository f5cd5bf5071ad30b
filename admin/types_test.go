package admin_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
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

// TestATenantsLimitsOfTypesOverHTTP: they are put with the tenant, at their scope or in its record, each before what each tenant has, and told where limits are.
func TestATenantsLimitsOfTypesOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenant_records":true,"tiers":{"standard":{"limit":{"enabled":false}}},"queues":{"mail":{"each_tenant":{"type_limits":{"*":{"tokens":1,"per":"24h","burst":3}}}}}}`})
	job := func(tenant, jobType string, cost int) ask {
		return ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":%q,"queue":"mail","type":%q,"cost":%d}`, tenant, jobType, cost)}
	}
	inForce := func(scope string) (burst any, path string) {
		t.Helper()
		config := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": scope}}).object(t)
		force, _ := config["in_force"].(map[string]any)
		rule, _ := config["rule"].(map[string]any)
		path, _ = rule["path"].(string)
		return force["burst"], path
	}
	for _, row := range []struct {
		put   ask
		scope string
		burst float64
		path  string
	}{
		{ask{op: "PUT /api/v1/tenants/{tenant}", path: map[string]string{"tenant": "acme"}, body: `{"queues":{"mail":{"type_limits":{"report":{"tokens":1,"per":"24h","burst":5}}}}}`}, "acme:mail:type=report", 5, "/tenants/acme/queues/mail/type_limits/report"},
		{ask{op: "PUT /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "acme:mail:type=*"}, body: `{"tokens":1,"per":"24h","burst":6}`}, "acme:mail:type=send", 6, "/tenants/acme/queues/mail/type_limits/*"},
		{ask{op: "PUT /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "acme:mail:type=a:b"}, body: `{"tokens":1,"per":"24h","burst":7}`}, "acme:mail:type=a:b", 7, "/tenants/acme/queues/mail/type_limits/a:b"},
		{ask{op: "PUT /api/v1/records/{tenant}", path: map[string]string{"tenant": "bolt"}, body: `{"queues":{"mail":{"type_limits":{"report":{"tokens":1,"per":"24h","burst":8}}}}}`, header: http.Header{"If-None-Match": {"*"}}}, "bolt:mail:type=report", 8, "/queues/mail/type_limits/report"},
	} {
		if row.put.header != nil {
			p.want(http.StatusOK, "operator", row.put)
		} else {
			p.put("operator", row.put)
		}
		if burst, path := inForce(row.scope); burst != row.burst || path != row.path {
			t.Errorf("%s has %v at %s, want %v at %s", row.scope, burst, path, row.burst, row.path)
		}
		part := strings.SplitN(row.scope, ":", 3)
		jobType := strings.TrimPrefix(part[2], "type=")
		p.want(http.StatusCreated, "operator", job(part[0], jobType, int(row.burst)))
		if got := p.want(http.StatusTooManyRequests, "operator", job(part[0], jobType, 1)).object(t); got["scope"] != row.scope {
			t.Errorf("refused by %v, want %s", got["scope"], row.scope)
		}
	}
	if burst, _ := inForce("acme:mail:type=*"); burst != 6.0 {
		t.Errorf("each other type of acme has %v", burst)
	}
	tenant := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/tenants/{tenant}", path: map[string]string{"tenant": "acme"}})
	if !bytes.Contains(tenant.body, []byte(`"queues":{"mail":{"type_limits":{"*":{`)) {
		t.Errorf("%s", tenant.body)
	}
	for _, bad := range []ask{
		{op: "PUT /api/v1/tenants/{tenant}", path: map[string]string{"tenant": "acme"}, body: `{"queues":{"mail":{"type_limits":{"report":{"tokens":0,"per":"1s"}}}}}`},
		{op: "PUT /api/v1/tenants/{tenant}", path: map[string]string{"tenant": "acme"}, body: `{"queues":{"mail":{"limit":{"tokens":1,"per":"1s"}}}}`},
	} {
		bad.header = from(p.inForce())
		p.want(http.StatusBadRequest, "operator", bad)
	}
	config := "/api/v1/rate-limit/config/{scope}"
	p.put("operator", ask{op: "DELETE " + config, path: map[string]string{"scope": "acme:mail:type=report"}})
	if burst, path := inForce("acme:mail:type=report"); burst != 6.0 || path != "/tenants/acme/queues/mail/type_limits/*" {
		t.Errorf("without its own acme has %v at %s", burst, path)
	}
	tried := p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/records/{tenant}/dry-run", path: map[string]string{"tenant": "bolt"}, body: `{"queues":{"mail":{"type_limits":{"report":{"tokens":1,"per":"24h","burst":2}}}}}`})
	if !bytes.Contains(tried.body, []byte(`/queues/mail/type_limits/report/burst`)) {
		t.Errorf("%s", tried.body)
	}
}

// TestARateOfARecordOverHTTP is told with the record and with its tenant, whose rate it is in the place of the policy's, and one that is none is refused by its place.
func TestARateOfARecordOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenant_records":true,"tiers":{"standard":{"limit":{"enabled":false}}},"tenants":{"bolt":{"dispatch":{"tokens":9,"per":"1s","burst":9}}}}`})
	bolt := map[string]string{"tenant": "bolt"}
	put := func(status int, body string) reply {
		return p.want(status, "operator", ask{op: "PUT /api/v1/records/{tenant}", path: bolt, body: body, header: http.Header{"If-Match": {"*"}}})
	}
	for _, row := range [][2]string{
		{`{"max_running":5}`, `"dispatch":{"tokens":9,"per_ms":1000,"burst":9}`},
		{`{"dispatch":{"tokens":5,"per":"1s","burst":3}}`, `"dispatch":{"tokens":5,"per_ms":1000,"burst":3}`},
		{`{"dispatch":{"enabled":false}}`, ""},
	} {
		if got := put(http.StatusOK, row[0]); !bytes.Contains(got.body, []byte(row[0])) {
			t.Errorf("%s is stored as %s", row[0], got.body)
		}
		tenant := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/tenants/{tenant}", path: bolt})
		if bytes.Contains(tenant.body, []byte(`"per_ms"`)) != (row[1] != "") || !bytes.Contains(tenant.body, []byte(row[1])) {
			t.Errorf("with %s the tenant is told as %s, want %s", row[0], tenant.body, row[1])
		}
	}
	if got := put(http.StatusBadRequest, `{"dispatch":{"tokens":0,"per":"1s"}}`); !bytes.Contains(got.body, []byte("/dispatch/tokens")) {
		t.Errorf("%s", got.body)
	}
}

// TestACapInAQueueOfARecordOverHTTP is told with the record and as a gate of its tenant, in the place of the policy's, and one that is none is refused by its place.
func TestACapInAQueueOfARecordOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenant_records":true,"tiers":{"standard":{"limit":{"enabled":false}}},"max_running":{"bolt:mail":9}}`})
	bolt := map[string]string{"tenant": "bolt"}
	put := func(status int, body string) reply {
		return p.want(status, "operator", ask{op: "PUT /api/v1/records/{tenant}", path: bolt, body: body, header: http.Header{"If-Match": {"*"}}})
	}
	for _, row := range [][2]string{
		{`{"max_running":5}`, `"limit":9`},
		{`{"queues":{"mail":{"max_running":3}}}`, `"limit":3`},
		{`{"queues":{"fax":{"max_running":3}}}`, `"limit":9`},
	} {
		if got := put(http.StatusOK, row[0]); !bytes.Contains(got.body, []byte(row[0])) {
			t.Errorf("%s is stored as %s", row[0], got.body)
		}
		if tenant := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/tenants/{tenant}", path: bolt}); !bytes.Contains(tenant.body, []byte(row[1])) {
			t.Errorf("with %s the tenant is told as %s, want %s", row[0], tenant.body, row[1])
		}
	}
	if got := put(http.StatusBadRequest, `{"queues":{"mail":{"max_running":1000001}}}`); !bytes.Contains(got.body, []byte("/queues/mail/max_running")) {
		t.Errorf("%s", got.body)
	}
}

// TestABoundOfARecordOverHTTP is in force for the next job over HTTP, in a queue and over all, is told with the record, and one that is none is refused by its place.
func TestABoundOfARecordOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenant_records":true,"tiers":{"standard":{"limit":{"enabled":false}}}}`})
	bolt := map[string]string{"tenant": "bolt"}
	const text = `{"overflow":{"policy":"reject","max_jobs":3},"queues":{"mail":{"overflow":{"policy":"reject","max_jobs":2}}}}`
	p.want(http.StatusOK, "operator", ask{op: "PUT /api/v1/records/{tenant}", path: bolt, body: text, header: http.Header{"If-None-Match": {"*"}}})
	if got := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/records/{tenant}", path: bolt}); !bytes.Contains(got.body, []byte(text)) {
		t.Errorf("%s", got.body)
	}
	for i, row := range []struct {
		queue  string
		status int
	}{{"mail", http.StatusCreated}, {"mail", http.StatusCreated}, {"mail", http.StatusTooManyRequests}, {"fax", http.StatusCreated}, {"fax", http.StatusTooManyRequests}} {
		got := p.want(row.status, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"bolt","queue":%q,"type":"send"}`, row.queue)})
		if row.status != http.StatusCreated && !bytes.Contains(got.body, []byte(`"overflow"`)) {
			t.Errorf("job %d: %s", i, got.body)
		}
	}
	for bad, told := range map[string]string{
		`{"overflow":{"policy":"spillover","max_jobs":3}}`:                         "overflow.policy",
		`{"queues":{"mail":{"overflow":{"policy":"reject","max_jobs":-1}}}}`:       "max_jobs",
		`{"queues":{"mail":{"overflow":{"policy":"reject","most":1}}}}`:            "most",
		`{"queues":{"mail":{"overflow":{"policy":"reject"}}}}`:                     "max_jobs",
		`{"queues":{"mail":{"overflow":{"policy":"never","max_jobs":1}}}}`:         "drop_oldest",
		`{"queues":{"mail":{"overflow":{"policy":"none","low_water_percent":7}}}}`: "overflow",
	} {
		if got := p.want(http.StatusBadRequest, "operator", ask{op: "PUT /api/v1/records/{tenant}", path: bolt, body: bad, header: http.Header{"If-Match": {"*"}}}); !bytes.Contains(got.body, []byte(told)) {
			t.Errorf("%s: no %s in %s", bad, told, got.body)
		}
	}
}
