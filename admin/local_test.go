package admin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/redisstore"
)

// TestChecksAreDecidedOnLease: of a scope in use most are, what is told then is a lower bound, what is peeked at is exact, and nothing is
// granted twice. A new policy counts within seconds.
func TestChecksAreDecidedOnLease(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenants":{"acme":{"limit":{"tokens":12,"per":"24h","burst":2000}}}}`})
	sources, granted, began := map[any]int{}, 0.0, time.Now()
	const calls = 300
	for range calls {
		got := p.want(http.StatusOK, "acme-admin", ask{op: checkOp, body: `{"scope":"acme:mail:high"}`}).object(t)
		sources[got["source"]]++
		granted++
		if left, _ := got["tokens_remaining"].(float64); left > 2000-granted+1 || got["source"] == "exact" && left < 1000-granted {
			t.Fatalf("after %v of 2000: %v", granted, got)
		}
	}
	if sources["leased"] < calls/2 || sources["exact"] == 0 || sources["leased"]+sources["exact"] != calls {
		t.Errorf("%v", sources)
	}
	both := `{"checks":[{"scope":"acme:mail"},{"scope":"acme","tokens":2000}]}`
	if got := p.want(http.StatusTooManyRequests, "acme-admin", ask{op: checkOp, body: both}).object(t); got["consumed"] != false {
		t.Errorf("%v", got)
	}
	must(t, p.limits.Close(t.Context()))
	// A lease ends after a second, with the tokens that this process had no time to spend: they are granted to nobody. Where all of it took
	// less than that there is none.
	stats := p.limits.Stats()
	taken := float64(sources["exact"]) + float64(stats.Leased-stats.Returned)
	if took := time.Since(began); took < time.Second && taken != granted {
		t.Errorf("%v tokens were taken for %v that were granted, in %s: %v, %+v", taken, granted, took, sources, stats)
	}
	metrics := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: map[string]string{"scope": "acme"}}).object(t)
	if left, _ := metrics["current_tokens"].(float64); left < 2000-taken || left > 2000-taken+1 || taken < granted {
		t.Errorf("%v tokens are left of 2000; %v were taken, and %v were granted: %v, %+v", left, taken, granted, sources, stats)
	}
}

func TestANewPolicyCountsSoonOnLease(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	for range 30 {
		p.call("operator", ask{op: checkOp, body: `{"scope":"acme"}`})
	}
	p.slow()
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		got := p.call("operator", ask{op: checkOp, body: `{"scope":"acme"}`})
		if got.header.Get("Ratelimit-Policy") == `"acme";q=10;w=86400;headgate-burst=10` {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v", got.header)
		}
	}
}

// TestChecksWithoutRedisGoByTheOutageModes: law L13 over HTTP. What takes nothing needs Redis.
func TestChecksWithoutRedisGoByTheOutageModes(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	s, err := redisstore.Open(t.Context(), redis.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	p := newPlantOn(t, s, func(c *admin.Config) {
		var err error
		c.Limiter, err = limiter.New(s, limiter.Config{Timeout: 500 * time.Millisecond, OutageAt: map[admission.Scope]limiter.Outage{
			"zeta": limiter.OutageClosed, "open": limiter.OutageOpen,
		}})
		must(t, err)
	})
	p.slow()
	for _, scope := range []string{"acme", "zeta", "open"} {
		if got := p.want(http.StatusOK, "operator", ask{op: checkOp, body: `{"scope":"` + scope + `"}`}).object(t); got["source"] != "exact" {
			t.Errorf("%v", got)
		}
	}
	redis.Kill(t)
	admitted := map[string]int{}
	for range 15 {
		for _, scope := range []string{"acme", "zeta", "open"} {
			got := p.call("operator", ask{op: checkOp, body: `{"scope":"` + scope + `"}`})
			switch body := got.object(t); {
			case got.status == http.StatusOK && body["source"] == "blind":
				admitted[scope]++
			case scope == "zeta" && got.status == http.StatusServiceUnavailable && got.header.Get("Retry-After") != "":
			case scope == "acme" && got.status == http.StatusTooManyRequests && body["source"] == "blind" && got.header.Get("Retry-After") != "":
			default:
				t.Errorf("%s: %d %v %s", scope, got.status, got.header, got.body)
			}
		}
	}
	if admitted["acme"] != 10 || admitted["zeta"] != 0 || admitted["open"] != 15 {
		t.Errorf("%v were admitted", admitted)
	}
	p.want(http.StatusServiceUnavailable, "operator", ask{op: checkOp, body: `{"scope":"acme","peek":true}`})
	p.want(http.StatusServiceUnavailable, "operator", ask{op: checkOp, body: `{"checks":[{"scope":"open"},{"scope":"zeta"}]}`})
}
