package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestAClientTellsWhatItsJobsHaveCost: less goes back, more is a debt, which is shown and refuses; a policy that has changed meanwhile is read
// anew. A failure after which the job comes back tells nothing.
func TestAClientTellsWhatItsJobsHaveCost(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		limit := func(burst int) {
			p.put("admin", ask{op: "PUT /api/v1/policy", body: fmt.Sprintf(`{"tenants":{"acme":{"limit":{"tokens":1,"per":"24h","burst":%d}}}}`, burst)})
		}
		left := func() float64 {
			t.Helper()
			answer := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: map[string]string{"scope": "acme"}}).object(t)
			tokens, _ := answer["current_tokens"].(float64)
			return tokens
		}
		wantLeft := func(what string, want float64) {
			t.Helper()
			if got := left(); got < want || got > want+1 {
				t.Errorf("%s: %v tokens are left, want %v", what, got, want)
			}
		}
		enqueue := func(id string, cost int) {
			p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"t","id":%q,"cost":%d}`, id, cost)})
		}
		limit(100)
		for _, id := range []string{"less", "dead", "retried", "silent"} {
			enqueue(id, 20)
		}
		c := p.client("1m")
		jobs := map[string]map[string]any{}
		for _, job := range c.collect(4) {
			jobs[job["id"].(string)] = job
		}
		wantLeft("reserved", 20)
		for _, bad := range []string{"-1", "10000001", "1.5", `"7"`} {
			c.end(http.StatusBadRequest, "complete", jobs["less"], `,"cost":`+bad)
		}
		wantLeft("after what is no cost", 20)
		c.end(http.StatusOK, "complete", jobs["less"], `,"cost":5`)
		c.end(http.StatusConflict, "complete", jobs["less"], `,"cost":5`)
		wantLeft("15 back", 35)
		c.end(http.StatusOK, "fail", jobs["dead"], `,"error":"no","discard":true,"cost":10`)
		wantLeft("10 back", 45)
		c.end(http.StatusOK, "fail", jobs["retried"], `,"error":"busy","delay":"1h","cost":0`)
		c.end(http.StatusOK, "complete", jobs["silent"], "")
		wantLeft("nothing back", 45)

		enqueue("more", 20)
		more := c.collect(1)[0]
		limit(80) // This server hears of it.
		c.end(http.StatusOK, "complete", more, `,"cost":60`)
		wantLeft("in debt", -15)
		refused := p.want(http.StatusTooManyRequests, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":1}`})
		if told := refused.header.Get("Ratelimit"); !strings.Contains(told, `"acme";r=0;`) {
			t.Errorf("RateLimit of a debt is %s", told)
		}
		if late := p.want(http.StatusTooManyRequests, "operator", ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t"}`}).object(t); late["tokens_left"].(float64) >= 0 {
			t.Errorf("refused with %v", late)
		}
	})
}
