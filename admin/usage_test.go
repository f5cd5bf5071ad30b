package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
)

// keepUsage has usage kept.
func (p *plant) keepUsage() {
	p.tb.Helper()
	_, err := rollout.Change(p.tb.Context(), p.store, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion}, func(current policy.Policy) (policy.Policy, error) {
		current.Usage = &policy.UsageRules{}
		return current, nil
	})
	must(p.tb, err)
}

// usage is what the API shows of it: lines of tenant, queue, jobs, calls and tokens.
func (p *plant) usage(who, query string) (lines [][]any, cursor string) {
	p.tb.Helper()
	page := p.want(http.StatusOK, who, ask{op: "GET /api/v1/usage", query: query}).object(p.tb)
	for _, one := range page["usage"].([]any) {
		u, _ := one.(map[string]any)
		lines = append(lines, []any{u["tenant"], u["queue"], u["jobs"], u["calls"], u["reserved"], u["committed"], u["refunded"], u["added"]})
	}
	cursor, _ = page["cursor"].(string)
	return lines, cursor
}

func walkUsage(p *plant) { p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/usage"}) }

// TestUsageIsShown, of jobs whose cost is told over HTTP and of reservations, page by page and as CSV, and to a tenant its own.
func TestUsageIsShown(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) {
		t.Helper()
		p.want(http.StatusCreated, "producer", ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t","cost":3}`})
		if lines, _ := p.usage("viewer", ""); len(lines) != 0 {
			t.Errorf("nobody asked for it: %v", lines)
		}
		p.keepUsage()
		for _, job := range []string{`"acme","id":"a","cost":10`, `"acme","id":"b","cost":10`, `"zeta","id":"c","cost":5`} {
			p.want(http.StatusCreated, "producer", ask{op: "POST /api/v1/jobs", body: `{"queue":"mail","type":"t","tenant":` + job + `}`})
		}
		for id, tokens := range map[string]string{"one": "8", "two": "2"} {
			p.want(http.StatusOK, "producer", reserved("reserve", "acme:chat", `,"reservation":%q,"tokens":4`, id))
			for range 2 {
				p.want(http.StatusOK, "producer", reserved("commit", "acme:chat", `,"reservation":%q,"tokens":%s`, id, tokens))
			}
		}
		c := p.client("1m")
		for _, held := range c.collect(4) {
			if held["id"] == "a" {
				c.end(http.StatusOK, "complete", held, `,"cost":7`)
			}
		}
		all := [][]any{
			{"acme", "chat", 0.0, 2.0, 8.0, 10.0, 2.0, 4.0}, {"acme", "mail", 2.0, 0.0, 20.0, 17.0, 3.0, 0.0}, {"zeta", "mail", 1.0, 0.0, 5.0, 5.0, 0.0, 0.0},
		}
		compare := func(who, query string, want ...[]any) {
			t.Helper()
			if got, _ := p.usage(who, query); !sameLines(got, want) {
				t.Errorf("%s asks %v: %v, want %v", who, query, got, want)
			}
		}
		compare("viewer", "", all...)
		compare("acme-viewer", "", all[:2]...)
		compare("viewer", "tenant=zeta", all[2])
		compare("viewer", "queue=mail", all[1:]...)
		compare("viewer", "to=2020-01-01")
		p.want(http.StatusNotFound, "acme-viewer", ask{op: "GET /api/v1/usage", query: "tenant=zeta"})
		p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/usage", query: "from=2026-11-02&to=2026-11-01"})
		p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/usage", query: "cursor=x"})
		var paged [][]any
		for cursor, more := "", true; more; more = cursor != "" {
			var page [][]any
			page, cursor = p.usage("viewer", "limit=1&cursor="+cursor)
			paged = append(paged, page...)
		}
		if !sameLines(paged, all) {
			t.Errorf("page by page: %v", paged)
		}
		csv := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/usage", query: "format=csv&limit=1"})
		day := time.Now().UTC().Format(time.DateOnly)
		if want := "day,tenant,queue,jobs,calls,reserved,committed,refunded,added\n" + day + ",acme,chat,0,2,8,10,2,4\n"; string(csv.body) != want {
			t.Errorf("%s, want %s", csv.body, want)
		}
		if kind, cursor := csv.header.Get("Content-Type"), csv.header.Get("Headgate-Cursor"); !strings.HasPrefix(kind, "text/csv") || cursor != day+":acme:chat" {
			t.Errorf("%s, %s", kind, cursor)
		}
	})
}

func sameLines(a, b [][]any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		for j := range a[i] {
			if a[i][j] != b[i][j] {
				return false
			}
		}
	}
	return true
}
