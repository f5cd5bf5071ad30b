package admin_test

import (
	"bytes"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
)

// permits is a call of a semaphore.
func permits(what, name, body string) ask {
	return ask{op: "POST /api/v1/semaphores/{name}/" + what, path: map[string]string{"name": name}, body: body}
}

// limitSemaphore puts a policy in force that has so many permits.
func (p *plant) limitSemaphore(name string, most int) {
	p.tb.Helper()
	_, err := rollout.Change(p.tb.Context(), p.store, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion}, func(current policy.Policy) (policy.Policy, error) {
		current.Semaphores = map[string]policy.SemaphoreRules{name: {Max: most}}
		return current, nil
	})
	must(p.tb, err)
}

func walkSemaphores(p *plant) {
	for _, what := range []string{"acquire", "extend"} {
		p.want(http.StatusOK, "producer", permits(what, "gpu", `{"token":"walk"}`))
	}
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/semaphores"})
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/semaphores/{name}", path: map[string]string{"name": "gpu"}})
	p.want(http.StatusNoContent, "producer", permits("release", "gpu", `{"token":"walk"}`))
}

// TestPermitsAreLeased: they are acquired, refused, extended, released, and asked for again by the same token.
func TestPermitsAreLeased(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		p.limitSemaphore("gpu", 2)
		one := p.want(http.StatusOK, "producer", permits("acquire", "gpu", `{"token":"a","lease":"1m"}`)).object(t)
		if one["token"] != "a" || one["limit"] != 2.0 || one["held"] != 1.0 || one["remaining"] != 1.0 {
			t.Errorf("%v", one)
		}
		expires, err := time.Parse(time.RFC3339Nano, one["expires_at"].(string))
		must(t, err)
		now, err := p.store.Time(t.Context())
		must(t, err)
		if left := expires.Sub(now); left > time.Minute || left < 50*time.Second {
			t.Errorf("it expires in %s", left)
		}
		if again := p.want(http.StatusOK, "producer", permits("acquire", "gpu", `{"token":"a","lease":"1m"}`)).object(t); again["held"] != 1.0 {
			t.Errorf("the same token again: %v", again)
		}
		p.want(http.StatusConflict, "producer", permits("acquire", "gpu", `{"token":"a","permits":2}`))
		p.want(http.StatusConflict, "producer", permits("acquire", "gpu", `{"permits":3}`))
		two := p.want(http.StatusOK, "producer", permits("acquire", "gpu", ``)).object(t)
		token, _ := two["token"].(string)
		full := p.want(http.StatusTooManyRequests, "producer", permits("acquire", "gpu", `{}`))
		if no := full.object(t); no["limit"] != 2.0 || no["held"] != 2.0 || no["position"] != 0.0 || no["reason"] != "refused" {
			t.Errorf("%v", no)
		}
		if after, err := strconv.Atoi(full.header.Get("Retry-After")); err != nil || after < 20 || after > 30 { // The second lease ends first.
			t.Errorf("retry after %q", full.header.Get("Retry-After"))
		}
		waits := p.want(http.StatusTooManyRequests, "producer", permits("acquire", "gpu", `{"token":"w","wait":"20ms"}`)).object(t)
		if waits["reason"] != "waiting" || waits["token"] != "w" || waits["position"] != 0.0 {
			t.Errorf("%v", waits)
		}
		seen := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/semaphores/{name}", path: map[string]string{"name": "gpu"}}).object(t)
		if seen["held"] != 2.0 || seen["waiting"] != 1.0 || seen["oldest"] == nil || seen["limit"] != 2.0 {
			t.Errorf("%v", seen)
		}
		p.want(http.StatusOK, "producer", permits("extend", "gpu", `{"token":"`+token+`","lease":"2m"}`))
		p.want(http.StatusConflict, "producer", permits("extend", "gpu", `{"token":"nobody"}`))
		for range 2 {
			p.want(http.StatusNoContent, "producer", permits("release", "gpu", `{"token":"`+token+`"}`))
		}
		p.want(http.StatusOK, "producer", permits("acquire", "gpu", `{"token":"w","wait":"5s"}`)) // It had its place.
		for _, held := range []string{"a", "w"} {
			p.want(http.StatusNoContent, "producer", permits("release", "gpu", `{"token":"`+held+`"}`))
		}
		if none := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/semaphores"}).object(t); len(none["semaphores"].([]any)) != 0 {
			t.Errorf("%v", none)
		}
		for _, bad := range []string{`{"permits":0}`, `{"lease":"10ms"}`, `{"lease":"2h"}`, `{"wait":"6s"}`, `{"token":"a b"}`, `{"max":3}`} {
			p.want(http.StatusBadRequest, "producer", permits("acquire", "gpu", bad))
		}
	})
}

// TestALeaseThatEndedIsTold: release and extend say 409, and somebody else has the permit.
func TestALeaseThatEndedIsTold(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.limitSemaphore("gpu", 1)
	p.want(http.StatusOK, "producer", permits("acquire", "gpu", `{"token":"a","lease":"1s"}`))
	p.want(http.StatusOK, "producer", permits("acquire", "gpu", `{"token":"b","wait":"5s"}`))
	p.want(http.StatusConflict, "producer", permits("release", "gpu", `{"token":"a"}`))
	p.want(http.StatusConflict, "producer", permits("extend", "gpu", `{"token":"a"}`))
	p.want(http.StatusNoContent, "producer", permits("release", "gpu", `{"token":"b"}`))
}

// TestSemaphoresOfARecordOverHTTP are in force for the next who acquires, are told with the semaphore and with the record, and one that is none is refused by its place.
func TestSemaphoresOfARecordOverHTTP(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"tenant_records":true,"semaphores":{"bolt:*":{"max":9}}}`})
		bolt := map[string]string{"tenant": "bolt"}
		put := func(status int, body string) reply {
			return p.want(status, "operator", ask{op: "PUT /api/v1/records/{tenant}", path: bolt, body: body, header: http.Header{"If-Match": {"*"}}})
		}
		for _, row := range []struct {
			record string
			limit  float64
		}{{`{"max_running":5}`, 9}, {`{"semaphores":{"gpu":{"max":3}}}`, 3}, {`{"semaphores":{"*":{"max":2}}}`, 2}, {`{"semaphores":{"disk":{"max":2}}}`, 9}} {
			if got := put(http.StatusOK, row.record); !bytes.Contains(got.body, []byte(row.record)) {
				t.Errorf("%s is stored as %s", row.record, got.body)
			}
			shown := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/semaphores/{name}", path: map[string]string{"name": "bolt:gpu"}}).object(t)
			one := p.want(http.StatusOK, "producer", permits("acquire", "bolt:gpu", `{"token":"a"}`)).object(t)
			if one["limit"] != row.limit || shown["limit"] != row.limit {
				t.Errorf("with %s: %v, shown as %v", row.record, one, shown)
			}
		}
		list := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/semaphores"})
		if !bytes.Contains(list.body, []byte(`"limit":9`)) {
			t.Errorf("%s", list.body)
		}
		if got := put(http.StatusBadRequest, `{"semaphores":{"gpu":{"max":1000001}}}`); !bytes.Contains(got.body, []byte("/semaphores/gpu/max")) {
			t.Errorf("%s", got.body)
		}
	})
}

// TestSemaphoresOfATenant: a credential of a tenant reaches TENANT:NAME and sees no other, page by page.
func TestSemaphoresOfATenant(t *testing.T) {
	t.Parallel()
	p := newPlantOf(t, 3)
	for _, name := range []string{"gpu", "acme:cpu", "acme:gpu", "acme:tape", "zeta:gpu"} {
		p.want(http.StatusOK, "operator", permits("acquire", name, `{"token":"t"}`))
	}
	p.want(http.StatusOK, "acme-admin", permits("acquire", "acme:gpu", `{}`))
	for _, name := range []string{"gpu", "zeta:gpu"} {
		p.want(http.StatusNotFound, "acme-admin", permits("acquire", name, `{}`))
		p.want(http.StatusNotFound, "acme-admin", permits("release", name, `{"token":"t"}`))
		p.want(http.StatusNotFound, "acme-admin", permits("extend", name, `{"token":"t"}`))
		p.want(http.StatusNotFound, "acme-admin", ask{op: "GET /api/v1/semaphores/{name}", path: map[string]string{"name": name}})
	}
	for who, want := range map[string][]string{"acme-admin": {"acme:cpu", "acme:gpu", "acme:tape"}, "viewer": {"acme:cpu", "acme:gpu", "acme:tape", "gpu", "zeta:gpu"}} {
		var got []string
		cursor := ""
		for more := true; more; more = cursor != "" {
			page := p.want(http.StatusOK, who, ask{op: "GET /api/v1/semaphores", query: "limit=2&cursor=" + cursor}).object(t)
			for _, one := range page["semaphores"].([]any) {
				got = append(got, one.(map[string]any)["name"].(string))
			}
			cursor, _ = page["cursor"].(string)
		}
		if len(got) != len(want) {
			t.Fatalf("%s sees %v, want %v", who, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s sees %v, want %v", who, got, want)
			}
		}
	}
}
