package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestAnswersTellHowMuchAQueueIsPressed: with its level on jobs and on checks, from HIGH on with Retry-After, and on nothing where the policy
// has nothing measured; a job that is shed is 429 with the reason, the tier is counted, and explain names it.
func TestAnswersTellHowMuchAQueueIsPressed(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		enqueue := func(status int, queue, priority string) reply {
			t.Helper()
			return p.want(status, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":%q,"type":"t","priority":%q}`, queue, priority)})
		}
		check := func(scope string) reply {
			t.Helper()
			return p.want(http.StatusOK, "operator", ask{op: checkOp, body: fmt.Sprintf(`{"scope":%q,"tokens":1}`, scope)})
		}
		soon := func(level string) { // A server that answers by itself asks again after a second at the latest.
			t.Helper()
			for until := time.Now().Add(20 * time.Second); check("acme:mail").header.Get("X-Backpressure-Level") != level && time.Now().Before(until); {
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the pace of checks
			}
		}
		told := func(a reply, level string, waits bool) {
			t.Helper()
			if got := a.header.Get("X-Backpressure-Level"); got != level {
				t.Errorf("the level is told as %q, not %q", got, level)
			}
			if got := a.header.Get("Retry-After"); (got != "") != waits {
				t.Errorf("at %q Retry-After is %q", level, got)
			}
		}
		told(enqueue(http.StatusCreated, "mail", "low"), "", false)
		told(check("acme:mail"), "", false)
		p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"queues":{"mail":{"pressure":{"max_depth":10}}},"tenants":{"acme":{"tier":"premium"}},
			"shedding":{"order":["low","medium"],"tiers":["basic","standard","premium"],"reserve":["high"],"at":{"HIGH":["low","medium:basic","medium:standard:over"]}}}`})
		press := func(level admission.PressureLevel, score float64) {
			t.Helper()
			const owner = "the test"
			version, err := p.store.PolicyInForce(t.Context())
			must(t, err)
			_, err = p.store.Partitions()[0].Promote(t.Context(), owner, time.Hour)
			must(t, err)
			to := store.Press{Owner: owner, Version: version, Queue: "mail", Pressure: admission.Pressure{Level: level, Score: score, RetryAfter: 7 * time.Second}, Life: time.Hour, Parts: "depth 0.9 of weight 1"}
			_, err = p.store.Press(t.Context(), to)
			must(t, err)
		}
		told(enqueue(http.StatusCreated, "mail", "low"), "NONE", false)
		press(admission.PressureMedium, 0.75)
		told(enqueue(http.StatusCreated, "mail", "low"), "MEDIUM", false)
		soon("MEDIUM")
		told(check("acme:mail"), "MEDIUM", false)
		press(admission.PressureHigh, 0.9)
		told(enqueue(http.StatusCreated, "mail", "high"), "HIGH", true)
		told(enqueue(http.StatusCreated, "other", "low"), "", false)
		soon("HIGH")
		told(check("acme:mail"), "HIGH", true)
		told(check("acme"), "", false)
		refused := enqueue(http.StatusTooManyRequests, "mail", "low")
		told(refused, "HIGH", true)
		body := refused.object(t)
		wait, _ := body["retry_after_ms"].(float64)
		if detail, _ := body["detail"].(string); body["reason"] != "shed" || wait < 7000 || wait > 10501 || !strings.Contains(detail, "HIGH pressure (score 0.900)") || !strings.Contains(detail, "tier premium") {
			t.Errorf("refused with %v", body)
		}
		explained := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/explain/{kind}/{name}", path: map[string]string{"kind": "queue", "name": "mail"}})
		for _, want := range []string{"HIGH, score 0.900: depth 0.9 of weight 1", "it refuses medium of tier basic, standard (standard of tenants over their share), low at that level"} {
			if !strings.Contains(string(explained.body), want) {
				t.Errorf("explain does not say %q: %s", want, explained.body)
			}
		}
	})
}
