package admin_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestACheckIsChargedForItsDimensions, by the limiter and without one: the answer has their buckets, and a refusal names the one that refuses.
func TestACheckIsChargedForItsDimensions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*admin.Config){"limiter": nil, "store": func(c *admin.Config) { c.Limiter = nil }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t, change)
			day := `{"tokens":1,"per":"24h","burst":`
			p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenants":{"acme":{"limit":` + day + `10}}},"dimensions":{` +
				`"user":{"limit":` + day + `5}},"ip":{"limit":` + day + `7},"by":["/24","/64"]}}}`})
			body := `{"scope":"acme","tokens":4,"also":{"user":"123","ip":"203.0.113.7"}}`
			got := p.want(http.StatusOK, "operator", ask{op: checkOp, body: body})
			for scope, left := range map[string]string{"acme": "6", "+user:123": "1", "+ip:203.0.113.0/24": "3"} {
				if want := `"scope":"` + scope + `","tokens_left":` + left; !strings.Contains(string(got.body), want) {
					t.Errorf("%s is not in %s", want, got.body)
				}
			}
			if limit := got.header.Get("Ratelimit"); !strings.Contains(limit, `"+user:123";r=1`) {
				t.Errorf("%s", limit)
			}
			refused := p.want(http.StatusTooManyRequests, "operator", ask{op: checkOp, body: `{"checks":[{"scope":"acme","tokens":2,"also":{"user":"123","ip":"203.0.113.8"}}]}`})
			if text := string(refused.body); !strings.Contains(text, `"refused_by":"+user:123"`) || refused.header.Get("Retry-After") == "" || !strings.Contains(text, `"consumed":false`) {
				t.Errorf("%v %s", refused.header, text)
			}
			peeked := p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":1,"peek":true,"also":{"ip":"203.0.113.8"}}`})
			if want := `"scope":"+ip:203.0.113.0/24","tokens_left":3`; !strings.Contains(string(peeked.body), want) || !strings.Contains(string(peeked.body), `"scope":"acme","tokens_left":6`) {
				t.Errorf("a refusal took something: %s", peeked.body)
			}
			for bad, want := range map[string]string{
				`{"scope":"acme","also":{"model":"x"}}`:                             "dimensions that the policy declares",
				`{"scope":"acme","also":{"ip":"nowhere"}}`:                          "an IP address",
				`{"scope":"+user:123"}`:                                             "scope",
				`{"scope":"acme","also":{"user":""}}`:                               "also",
				`{"checks":[{"scope":"acme"}],"also":{"user":"123"}}`:               "",
				`{"scope":"acme","also":{"a":"1","b":"1","c":"1","d":"1","e":"1"}}`: "also",
			} {
				if got := p.want(http.StatusBadRequest, "operator", ask{op: checkOp, body: bad}); !strings.Contains(string(got.body), want) {
					t.Errorf("%s: %s", bad, got.body)
				}
			}
			if got := p.want(http.StatusBadRequest, "acme-admin", ask{op: checkOp, body: body}); !strings.Contains(string(got.body), "a credential of one tenant") {
				t.Errorf("%s", got.body)
			}
			config := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "+user:123"}})
			if !strings.Contains(string(config.body), `"path":"/dimensions/user/limit"`) || !strings.Contains(string(config.body), `"burst":5`) {
				t.Errorf("%s", config.body)
			}
			p.want(http.StatusOK, "operator", ask{op: "PUT /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "+user:123"}, body: day + `50}`, header: http.Header{"If-Match": {config.header.Get("ETag")}}})
			p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"probe","tokens":45,"also":{"user":"123"}}`})
		})
	}
}

// TestAReservationIsOfItsDimensions: over HTTP it takes its estimate of each, and its id alone settles all.
func TestAReservationIsOfItsDimensions(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	day := `{"tokens":1,"per":"24h","burst":`
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenants":{"acme":{"limit":` + day + `100}}},"dimensions":{"user":{"limit":` + day + `50}},"ip":{"limit":` + day + `70},"by":["/24","/64"]}}}`})
	reserve := func(tokens int) ask {
		return ask{op: "POST /api/v1/rate-limit/reserve", body: `{"scope":"acme","reservation":"call","tokens":` + strconv.Itoa(tokens) + `,"also":{"user":"123","ip":"203.0.113.7"}}`}
	}
	left := func(what string, acme, user, ip int) {
		t.Helper()
		got := p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme","peek":true,"also":{"user":"123","ip":"203.0.113.8"}}`})
		for scope, n := range map[string]int{"acme": acme, "+user:123": user, "+ip:203.0.113.0/24": ip} {
			if want := `"scope":"` + scope + `","tokens_left":` + strconv.Itoa(n); !strings.Contains(string(got.body), want) {
				t.Errorf("%s: %s is not in %s", what, want, got.body)
			}
		}
	}
	for _, again := range []string{"false", "true"} {
		got := p.want(http.StatusOK, "operator", reserve(40))
		for _, want := range []string{`"scope":"+user:123","tokens_left":10`, `"scope":"+ip:203.0.113.0/24","tokens_left":30`, `"again":` + again} {
			if !strings.Contains(string(got.body), want) {
				t.Errorf("%s is not in %s", want, got.body)
			}
		}
	}
	left("reserved", 60, 10, 30)
	p.want(http.StatusConflict, "operator", ask{op: "POST /api/v1/rate-limit/reserve", body: `{"scope":"acme","reservation":"call","tokens":40,"also":{"user":"123"}}`})
	p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/rate-limit/commit", body: `{"scope":"acme","reservation":"call","tokens":15}`})
	left("committed", 85, 35, 55)
	refused := p.want(http.StatusTooManyRequests, "operator", ask{op: "POST /api/v1/rate-limit/reserve", body: `{"scope":"acme","tokens":36,"also":{"user":"123"}}`})
	if !strings.Contains(string(refused.body), `"refused_by":"+user:123"`) || refused.header.Get("Retry-After") == "" {
		t.Errorf("%v %s", refused.header, refused.body)
	}
	if got := p.want(http.StatusBadRequest, "acme-admin", reserve(1)); !strings.Contains(string(got.body), "a credential of one tenant") {
		t.Errorf("%s", got.body)
	}
	left("refused", 85, 35, 55)
}

// TestAServerCountsValuesWhereLimitsAreWarnedOf: one without a limiter, too; a peek takes nothing, and is not counted.
func TestAServerCountsValuesWhereLimitsAreWarnedOf(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.Limiter = nil })
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"anomalies":{"warn_at":0.8},"dimensions":{"user":{"limit":{"tokens":10,"per":"24h","burst":10}}}}`})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, ended := p.listen(ctx)
	now, err := p.store.Time(t.Context())
	must(t, err)
	redistest.Await(t, "a server that counts", func() bool {
		p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"probe","tokens":1}`})
		return p.counted("probe") != (decided{})
	})
	for _, call := range []string{`"tokens":4`, `"tokens":5`, `"tokens":1,"peek":true`} {
		p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"acme",` + call + `,"also":{"user":"123"}}`})
	}
	p.want(http.StatusTooManyRequests, "operator", ask{op: checkOp, body: `{"scope":"acme","tokens":2,"also":{"user":"123"}}`})
	p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/rate-limit/reserve", body: `{"scope":"acme","tokens":1,"also":{"user":"123"}}`})
	stop()
	must(t, <-ended)
	var sum store.Minute
	for minute := range 3 {
		all, err := p.store.Nearby(t.Context(), now.Add(time.Duration(minute)*time.Minute))
		must(t, err)
		m := all["+user:123"]
		sum.Allowed, sum.Refused, sum.Tokens = sum.Allowed+m.Allowed, sum.Refused+m.Refused, sum.Tokens+m.Tokens
	}
	if want := (store.Minute{Allowed: 3, Refused: 1, Tokens: 12}); sum != want {
		t.Errorf("%+v are counted, want %+v", sum, want)
	}
}
