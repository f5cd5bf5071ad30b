package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestNamesThatAreStepsOfAPathAreNotMade: nothing new is called ., .. or /, and paths with such steps are not redirected, whose method would
// go with them. Data of older releases that has such names is looked at by escaping the dots.
func TestNamesThatAreStepsOfAPathAreNotMade(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	for _, name := range []string{".", "..", "/"} {
		for _, field := range []string{"tenant", "queue", "id", "downstream"} {
			job := map[string]string{"tenant": "acme", "queue": "mail", "type": "t", "id": "one"}
			job[field] = name
			text, err := json.Marshal(job)
			must(t, err)
			got := p.want(http.StatusBadRequest, "operator", ask{op: "POST /api/v1/jobs", body: string(text)})
			if !strings.Contains(string(got.body), `invalid `+field+` \"`+name+`\": allowed is any name but`) {
				t.Errorf("%s", got.body)
			}
		}
	}
	for _, target := range []string{"/api/v1/tenants/acme/queues/../pause", "/api/v1/tenants/./pause", "/api/v1//queues/mail/pause", "/api/v1/queues/mail/pause/"} {
		got := p.raw(http.MethodPut, target, p.keys["admin"], "{}", nil)
		if got.status != http.StatusNotFound || got.header.Get("Location") != "" {
			t.Errorf("%s: %d %v", target, got.status, got.header)
		}
	}
	if got := p.raw(http.MethodGet, "/api/v1/tenants/%2E%2E", p.keys["admin"], "", nil); got.status != http.StatusOK || got.object(t)["tenant"] != ".." {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, id := range []string{"a/b", "a/../b", "...", "a//"} { // What is escaped is no step.
		made := p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"t","id":%q}`, id)})
		if got := p.raw(http.MethodGet, made.header.Get("Location"), p.keys["viewer"], "", nil); got.status != http.StatusOK || got.object(t)["id"] != id {
			t.Errorf("%q: %d %s", id, got.status, got.body)
		}
	}
}

// TestAChunkedBodyEndsItsConnection: it may have had a length beside, which another server in between believed.
func TestAChunkedBodyEndsItsConnection(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	address, _ := p.listen(t.Context())
	for length, closes := range map[string]bool{"Content-Length: 16": false, "Transfer-Encoding: chunked": true, "Content-Length: 3\r\nTransfer-Encoding: chunked": true} {
		l := dial(t, address)
		body := `{"scope":"acme"}`
		if closes {
			body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		}
		_, err := fmt.Fprintf(l, "POST /api/v1/rate-limit/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: %s\r\n%s\r\n\r\n%s", p.keys["operator"], length, body)
		must(t, err)
		response, err := http.ReadResponse(l.reader, nil)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusOK || response.Close != closes {
			t.Errorf("%q: %d, closes %v", length, response.StatusCode, response.Close)
		}
	}
}

// TestARefusedUserOfRedisIsSaid: whose password was changed while the server runs, and whose connections are gone.
func TestARefusedUserOfRedisIsSaid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	root := server.Client(t)
	must(t, root.Do(t.Context(), append([]any{"ACL", "SETUSER", "headgate", "on", ">secret"}, words(documentedRules(t))...)...).Err())
	options := server.Options()
	options.Username, options.Password = "headgate", "secret"
	client := redis.NewClient(options)
	t.Cleanup(func() { must(t, client.Close()) })
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{})
	must(t, err)
	p := newPlantOn(t, s, nil)
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/queues"})
	must(t, root.Do(t.Context(), "ACL", "SETUSER", "headgate", "resetpass", ">other").Err())
	must(t, root.Do(t.Context(), "CLIENT", "KILL", "USER", "headgate").Err())
	for _, a := range []ask{{op: "GET /api/v1/queues"}, {op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "a", "id": "b"}}, {op: checkOp, body: `{"scope":"acme"}`}, {op: "POST /api/v1/jobs", body: someJob}} {
		got := p.want(http.StatusServiceUnavailable, "operator", a)
		if got.header.Get("Retry-After") != "1" || !strings.Contains(string(got.body), "refuses the user") || strings.Contains(string(got.body), "WRONGPASS") {
			t.Errorf("%s: %v %s", a.op, got.header, got.body)
		}
	}
	p.want(http.StatusServiceUnavailable, "", ask{op: "GET /api/v1/health/ready"})
}

// TestADamagedTimeSpoilsNoPage: a score beyond the years that JSON has is shown as the nearest that it has.
func TestADamagedTimeSpoilsNoPage(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "d1", "d2")
	p.work(t.Context(), 2, store.Kill)
	p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t","id":"later","delay":"1h"}`})
	client := redistest.Shared(t).Client(t)
	keys := redisstore.Keys(p.store)
	for key, score := range map[string]float64{keys.Dead(): 1e18, keys.Later(): -1e18} {
		members, err := client.ZRange(t.Context(), key, 0, 0).Result()
		must(t, err)
		if len(members) != 1 {
			t.Fatalf("%s has %d members", key, len(members))
		}
		must(t, client.ZAdd(t.Context(), key, redis.Z{Score: score, Member: members[0]}).Err())
	}
	letters := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/dead-letters"})
	if !strings.Contains(string(letters.body), "9999-12-31") || strings.Count(string(letters.body), `"at"`) != 2 {
		t.Errorf("%s", letters.body)
	}
	for _, a := range []ask{
		{op: "GET /api/v1/jobs"},
		{op: "GET /api/v1/jobs", query: "place=later"},
		{op: "GET /api/v1/dead-letters/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "d1"}},
		{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "later"}},
		{op: "GET /api/v1/explain/{kind}/{name}", path: map[string]string{"kind": "job", "name": "acme:later"}},
	} {
		p.want(http.StatusOK, "viewer", a)
	}
}
