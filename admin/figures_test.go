package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestADecisionInThePapersWords: their own body is taken, and the answer has their names beside ours.
func TestADecisionInThePapersWords(t *testing.T) {
	t.Parallel()
	var log book
	p := newPlant(t, func(c *admin.Config) { c.Logger = zerolog.New(&log) })
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenants":{"tenant-123":{"limit":{"tokens":10,"per":"1h","burst":5}}}}`})
	check := func(status int, body string) map[string]any {
		t.Helper()
		return p.want(status, "operator", ask{op: "POST /api/v1/rate-limit/check", body: body}).object(t)
	}
	const asked = `{"scope":"tenant-123:email-queue:high","tokens":3,"metadata":{"request_id":"req-456","user_agent":"producer-v1.0"}}`
	got := check(http.StatusOK, asked)
	if got["allowed"] != true || got["tokens_consumed"] != 3.0 || got["wait_time_ms"] != 0.0 || got["bucket_capacity"] != 5.0 || got["scope"] != "tenant-123:email-queue:high" || got["error"] != nil {
		t.Errorf("%v", got)
	}
	if left, _ := got["tokens_remaining"].(float64); left < 2 || left > 2.1 {
		t.Errorf("%v left", got["tokens_remaining"])
	}
	got = check(http.StatusTooManyRequests, asked)
	refusal, _ := got["error"].(map[string]any)
	if got["tokens_consumed"] != 0.0 || refusal["code"] != "RATE_LIMIT_EXCEEDED" || got["wait_time_ms"].(float64) < 300_000 || !strings.Contains(refusal["message"].(string), "tenant-123:email-queue:high") {
		t.Errorf("%v", got)
	}
	if rate, _ := got["refill_rate"].(float64); rate < 10./3601 || rate > 10./3599 {
		t.Errorf("%v a second", rate)
	}
	if _, err := time.Parse(time.RFC3339, got["timestamp"].(string)); err != nil {
		t.Error(err)
	}
	text := log.String()
	for _, want := range []string{`"caller_request_id":"req-456","caller_agent":"producer-v1.0"`, `"scope":"tenant-123:email-queue:high","reason":"limited","by":"tenant-123","tokens":3,`, `"refused":1,"message":"check refused"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	check(http.StatusOK, `{"scope":"acme:mail","priority":"high"}`)
	check(http.StatusOK, `{"checks":[{"scope":"acme:mail","priority":"10"},{"scope":"bolt"}]}`)
	for body, want := range map[string]string{
		`{"scope":"acme","priority":"high"}`:                                            "unless the scope is tenant:queue",
		`{"scope":"acme:mail","priority":"soon"}`:                                       "a class of queue mail",
		`{"scope":"acme","metadata":{"user":"x"}}`:                                      "/metadata",
		`{"scope":"acme","metadata":{"request_id":"` + strings.Repeat("x", 129) + `"}}`: "/metadata/request_id",
	} {
		if got := p.want(http.StatusBadRequest, "operator", ask{op: "POST /api/v1/rate-limit/check", body: body}); !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %s", body, got.body)
		}
	}
}

// TestAScopeTellsItsTotalsAndFigures, from the counts of minutes and its bucket.
func TestAScopeTellsItsTotalsAndFigures(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenants":{"acme":{"limit":{"tokens":1,"per":"1h","burst":4}}}}`})
	_, err := p.store.Count(t.Context(), []store.ScopeCount{
		{Scope: "acme", Allowed: 6, Refused: 4, Tokens: 30},
		{Scope: "acme:mail", Allowed: 9, Refused: 1, Tokens: 10},
		{Scope: "acme:mail:high", Allowed: 8, Refused: 1, Tokens: 9},
		{Scope: admission.Global, Allowed: 15, Refused: 5, Tokens: 40},
		{Scope: "idle:mail", Allowed: 1},
	})
	must(t, err)
	p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/rate-limit/check", body: `{"scope":"acme","tokens":4}`})
	acme, mail := map[string]string{"scope": "acme"}, map[string]string{"scope": "acme:mail"}

	status := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: acme}).object(t)
	if status["total_requests"] != 10.0 || status["allowed_requests"] != 6.0 || status["denied_requests"] != 4.0 || status["burst_capacity"] != 4.0 || status["counted_from"] == nil || status["updated_at"] == nil {
		t.Errorf("%v", status)
	}
	now, err := p.store.Time(t.Context())
	must(t, err)
	next, err := time.Parse(time.RFC3339, status["next_refill_at"].(string))
	if wait := next.Sub(now); err != nil || wait < 50*time.Minute || wait > time.Hour {
		t.Errorf("the next token comes in %s, %v", wait, err)
	}
	if ttl, _ := status["ttl_seconds"].(float64); ttl < 3600 {
		t.Errorf("forgotten after %v s", ttl)
	}
	metrics := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/rate-limit/metrics/{scope}", path: acme}).object(t)["metrics"].(map[string]any)
	if metrics["average_tokens"] != 3.0 || metrics["bucket_utilization"].(float64) < .99 || metrics["wait_time_p50"] != 0.0 || metrics["wait_time_p95"].(float64) < 1e6 || metrics["requests_per_second"].(float64) <= 0 {
		t.Errorf("%v", metrics)
	}
	queue := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/rate-limit/metrics/{scope}", path: mail}).object(t)
	classes, _ := queue["priority_breakdown"].(map[string]any)
	if high, _ := classes["high"].(map[string]any); len(classes) != 3 || high["requests"] != 9.0 || high["denied"] != 1.0 {
		t.Errorf("%v", classes)
	}
	if metrics, _ := queue["metrics"].(map[string]any); metrics["bucket_utilization"] != nil || metrics["wait_time_p50"] != 0.0 {
		t.Errorf("%v", metrics)
	}
	for query, want := range map[string]string{"": "global acme acme:mail acme:mail:high idle:mail", "sort=refused&limit=3": "global acme acme:mail", "sort=tokens&minutes=61&limit=2": "global acme"} {
		var names []string
		for _, one := range p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/metrics", query: query}).object(t)["scopes"].([]any) {
			names = append(names, one.(map[string]any)["scope"].(string))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("?%s: %s", query, got)
		}
	}
	p.want(http.StatusForbidden, "acme-viewer", ask{op: "GET /api/v1/rate-limit/metrics"})
}
