package admin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
)

// walkNames puts, lists, shows and takes away the settings of tiers, queues, downstreams and tenants.
func walkNames(p *plant) {
	for _, row := range []struct{ one, many, name, body string }{
		{"/api/v1/tiers/{tier}", "/api/v1/tiers", "gold", `{"limit":{"tokens":7,"per":"1s","burst":7}}`},
		{"/api/v1/queues/{queue}/settings", "/api/v1/queue-settings", "bulk", `{"max_running":5}`},
		{"/api/v1/downstreams/{downstream}", "/api/v1/downstreams", "smtp", `{"max_running":5}`},
		{"/api/v1/downstreams/{downstream}", "/api/v1/downstreams", "*", `{"max_parked":9}`},
		{"/api/v1/tenants/{tenant}", "/api/v1/tenants", "bulk", `{"max_running":5}`},
	} {
		path := map[string]string{"tier": row.name, "queue": row.name, "downstream": row.name, "tenant": row.name}
		p.put("admin", ask{op: "PUT " + row.one, path: path, body: row.body})
		listed := p.want(http.StatusOK, "viewer", ask{op: "GET " + row.many, query: "limit=1000"})
		if !bytes.Contains(listed.body, []byte(`"`+row.name+`"`)) || !bytes.Contains(listed.body, []byte(row.body[1:len(row.body)-1])) {
			p.tb.Errorf("%s: %s", row.many, listed.body)
		}
		p.want(http.StatusOK, "viewer", ask{op: "GET " + row.one, path: path})
		p.put("admin", ask{op: "DELETE " + row.one, path: path})
		if listed := p.want(http.StatusOK, "viewer", ask{op: "GET " + row.many, query: "limit=1000"}); bytes.Contains(listed.body, []byte(`"`+row.name+`"`)) {
			p.tb.Errorf("%s after all is gone: %s", row.many, listed.body)
		}
	}
}

// TestListsOfThePolicyComeInPages: each name once, in order, whatever the length of a page, and those of a tier alone where it is asked for.
func TestListsOfThePolicyComeInPages(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	tenants, queues := map[string]any{}, map[string]any{}
	for n := range 25 {
		tenants[fmt.Sprintf("t%02d", n)] = map[string]any{"tier": []string{"basic", "premium"}[n%2]}
		queues[fmt.Sprintf("q%02d", n)] = map[string]any{"max_running": n + 1}
	}
	document, err := json.Marshal(map[string]any{"tenants": tenants, "queues": queues})
	must(t, err)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: string(document)})
	read := func(op, query, list, name string) (all []string, pages int) {
		t.Helper()
		for cursor := ""; ; {
			page := p.want(http.StatusOK, "viewer", ask{op: op, query: query + "&limit=10&cursor=" + cursor}).object(t)
			for _, one := range page[list].([]any) {
				all = append(all, one.(map[string]any)[name].(string))
			}
			pages++
			if cursor, _ = page["cursor"].(string); cursor == "" {
				return all, pages
			}
		}
	}
	for _, row := range []struct {
		op, query, list, name string
		want, pages           int
	}{
		{"GET /api/v1/tenants", "", "tenants", "tenant", 25, 3},
		{"GET /api/v1/tenants", "tier=basic", "tenants", "tenant", 13, 2},
		{"GET /api/v1/queue-settings", "", "parts", "name", 25, 3},
	} {
		all, pages := read(row.op, row.query, row.list, row.name)
		if len(all) != row.want || pages != row.pages {
			t.Errorf("%s?%s: %d on %d pages: %v", row.op, row.query, len(all), pages, all)
		}
		for i := 1; i < len(all); i++ {
			if all[i-1] >= all[i] {
				t.Errorf("%s: %s before %s", row.op, all[i-1], all[i])
			}
		}
	}
}

// TestALimitIsShownAsItWasPutLast, by whichever server: each call asks which version is in force.
func TestALimitIsShownAsItWasPutLast(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	other := newPlantOn(t, p.store, nil)
	acme := ask{op: "GET /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "acme"}}
	for tokens := 1; tokens <= 3; tokens++ {
		limit := fmt.Sprintf(`{"tokens":%d,"per":"1s","burst":1}`, tokens)
		p.put("admin", ask{op: "PUT /api/v1/rate-limit/config/{scope}", path: acme.path, body: limit})
		for _, server := range []*plant{p, other} {
			if got := server.want(http.StatusOK, "viewer", acme); !bytes.Contains(got.body, []byte(`"own":`+limit)) || got.header.Get("Etag") != fmt.Sprintf("%q", strconv.Itoa(tokens)) {
				t.Errorf("after %s: %s, %s", limit, got.body, got.header.Get("Etag"))
			}
		}
	}
}
