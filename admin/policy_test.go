package admin_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// from says which version an edit was made from.
func from(etag string) http.Header { return http.Header{"If-Match": {etag}} }

// inForce returns the ETag of the policy in force.
func (p *plant) inForce() string {
	p.tb.Helper()
	return p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/policy"}).header.Get("Etag")
}

// put makes an edit from the version in force.
func (p *plant) put(who string, a ask) {
	p.tb.Helper()
	a.header = from(p.inForce())
	p.want(http.StatusOK, who, a)
}

// walkPolicy comes before what asks for decisions: those are told once a second, and would come into the forecast sooner or later.
func walkPolicy(p *plant) {
	const document = `{"tenants":{"acme":{"tier":"premium"}}}`
	would := p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/policy/dry-run", body: document}).object(p.tb)
	if would["version"] != 1.0 || len(would["changes"].([]any)) != 1 || p.inForce() != `"0"` {
		p.tb.Errorf("%v, and in force is %s", would, p.inForce())
	}
	_, err := p.store.Count(p.tb.Context(), []store.ScopeCount{{Scope: "global", Allowed: 90, Tokens: 90}, {Scope: "acme", Allowed: 40, Refused: 5, Tokens: 45}})
	must(p.tb, err)
	strict := p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/policy/dry-run", body: `{"tenants":{"acme":{"limit":{"tokens":1,"per":"24h","burst":30}}}}`})
	const seen = `{"scope":"acme","tier":"standard","demand":45,"before":{"allowed":45,"refused":0},"after":{"allowed":30,"refused":15}}`
	if !strings.Contains(string(strict.body), seen) || !strings.Contains(string(strict.body), `"coverage":0.5,`) {
		p.tb.Errorf("%s", strict.body)
	}
	put := ask{op: "PUT /api/v1/policy", body: document, query: "reason=launch"}
	p.want(http.StatusPreconditionRequired, "admin", put)
	put.header = from(`"7"`)
	if lost := p.want(http.StatusPreconditionFailed, "admin", put); lost.header.Get("Etag") != `"0"` {
		p.tb.Errorf("the loser is told of %q", lost.header.Get("Etag"))
	}
	put.header = from(`"5", "0"`)
	if done := p.want(http.StatusOK, "admin", put); done.header.Get("Etag") != `"1"` {
		p.tb.Errorf("stored as %s", done.header.Get("Etag"))
	}
	for body, want := range map[string]string{
		`{"tenants":{"acme":{"tier":"gold"}}}`: "gold", `{"colour":1}`: "colour", `{"global":{"tokens":0,"per":"1s","burst":1}}`: "1 to 1000000000",
	} {
		for _, op := range []string{"PUT /api/v1/policy", "POST /api/v1/policy/dry-run"} {
			if bad := p.want(http.StatusBadRequest, "admin", ask{op: op, body: body, header: from(`"1"`)}); !bytes.Contains(bad.body, []byte(want)) {
				p.tb.Errorf("%s %s: %s", op, body, bad.body)
			}
		}
	}
	p.want(http.StatusPreconditionFailed, "admin", ask{op: "PUT /api/v1/policy", body: `{"version":9}`, header: from(`"1"`)})
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{}`})
	back := ask{op: "POST /api/v1/policy/rollback", body: `{"version":1,"reason":"mistake"}`}
	p.want(http.StatusPreconditionRequired, "admin", back)
	p.put("admin", back)
	back.body, back.header = `{"version":99}`, from(`"3"`)
	p.want(http.StatusNotFound, "admin", back)
	version := ask{op: "GET /api/v1/policy/versions/{version}", path: map[string]string{"version": "1"}}
	old, now := p.want(http.StatusOK, "viewer", version).body, p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/policy"}).body
	if again := bytes.Replace(old, []byte(`"version":1,`), []byte(`"version":3,`), 1); !bytes.Equal(again, now) {
		p.tb.Errorf("version 1 is\n%s\nand again\n%s", old, now)
	}
	version.path["version"] = "99"
	p.want(http.StatusNotFound, "viewer", version)
	if all := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/policy/versions"}).object(p.tb)["versions"].([]any); len(all) != 3 {
		p.tb.Errorf("%v", all)
	}
	walkAudit(p)
}

// walkAudit reads what walkPolicy did, an entry a page.
func walkAudit(p *plant) {
	var told []string
	for cursor, first := "", true; first || cursor != ""; first = false {
		page := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/audit", query: "limit=1&cursor=" + cursor}).object(p.tb)
		entry := page["entries"].([]any)[0].(map[string]any)
		cursor, _ = page["cursor"].(string)
		if entry["action"] != "policy" { // The acts of other walks are there too.
			continue
		}
		told = append(told, fmt.Sprint(entry["from"], ">", entry["to"], " ", entry["author"], " ", entry["reason"], " ", entry["restored"]))
	}
	if want := []string{"2>3 admin mistake 1", "1>2 admin <nil> <nil>", "0>1 admin launch <nil>"}; !slices.Equal(told, want) {
		p.tb.Errorf("the audit tells %q, want %q", told, want)
	}
	p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/audit", query: "cursor=nonsense"})
}

func walkParts(p *plant) {
	const limit = `{"tokens":7,"per":"1s","burst":9}`
	for _, scope := range []string{"global", "zeta", "zeta:mail", "zeta:mail:high"} {
		config := map[string]string{"scope": scope}
		put, end := ask{op: "PUT /api/v1/rate-limit/config/{scope}", path: config, body: limit}, ask{op: "DELETE /api/v1/rate-limit/config/{scope}", path: config}
		p.want(http.StatusPreconditionRequired, "admin", put)
		p.put("admin", put)
		seen := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/config/{scope}", path: config})
		if !bytes.Contains(seen.body, []byte(`"own":`+limit+`,"in_force":{"tokens":7,"per_ms":1000,"burst":9}`)) {
			p.tb.Errorf("%s", seen.body)
		}
		p.put("admin", end)
		end.header = from(p.inForce())
		p.want(http.StatusNotFound, "admin", end)
	}
	global := ask{op: "PUT /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "global"}, body: limit}
	p.want(http.StatusForbidden, "operator", global)
	for _, bad := range []string{`{"tokens":7}`, `{"tokens":7,"per":"1s","burst":9,"rate_per_second":3}`, `{"tokens":7,"per":"soon","burst":9}`} {
		p.want(http.StatusBadRequest, "operator", ask{op: global.op, path: map[string]string{"scope": "zeta"}, body: bad, header: from(p.inForce())})
	}
	tenant := map[string]string{"tenant": "zeta"}
	p.put("operator", ask{op: "PUT /api/v1/tenants/{tenant}", path: tenant, body: `{"tier":"basic","priority_weights":{"high":7},"max_running":3,"dispatch":` + limit + `}`})
	got := p.want(http.StatusOK, "zeta-admin", ask{op: "GET /api/v1/tenants/{tenant}", path: tenant})
	if seen := got.object(p.tb); seen["tier"] != "basic" || !bytes.Contains(got.body, []byte(`"priority_weights":{"high":7}`)) || got.header.Get("Etag") != p.inForce() {
		p.tb.Errorf("%s", got.body)
	}
	p.want(http.StatusBadRequest, "operator", ask{op: "PUT /api/v1/tenants/{tenant}", path: tenant, body: `{"tier":"gold"}`, header: from(p.inForce())})
	p.put("operator", ask{op: "DELETE /api/v1/tenants/{tenant}", path: tenant, query: "reason=gone"})
	p.want(http.StatusNotFound, "operator", ask{op: "DELETE /api/v1/tenants/{tenant}", path: tenant, header: from(p.inForce())})
	tier := map[string]string{"tier": "gold"}
	p.want(http.StatusNotFound, "viewer", ask{op: "GET /api/v1/tiers/{tier}", path: tier})
	p.put("admin", ask{op: "PUT /api/v1/tiers/{tier}", path: tier, body: `{"limit":` + limit + `}`})
	if seen := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/tiers/{tier}", path: tier}); string(seen.body) != `{"limit":`+limit+`}` {
		p.tb.Errorf("%s", seen.body)
	}
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{}`}) // What the walk does next has the built-in limits.
}

// TestTheAuditIsCompleteUnderConcurrentEditors: sixteen editors change the same policy over and over. Each version has one
// entry, by the editor who was told 200 and the version; who was too late was told 412 and has none, and no edit that
// was answered with 200 is missing in the end.
func TestTheAuditIsCompleteUnderConcurrentEditors(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	const editors, rounds = 16, 12
	var mu sync.Mutex
	won := map[string]string{} // reason by ETag
	lost := 0
	var all sync.WaitGroup
	for e := range editors {
		all.Go(func() {
			for n := range rounds {
				etag := p.call("viewer", ask{op: "GET /api/v1/policy"}).header.Get("Etag")
				reason := fmt.Sprintf("e%d-%d", e, n)
				got := p.call("operator", ask{
					op: "PUT /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "acme:" + reason}, query: "reason=" + reason,
					body: `{"tokens":7,"per":"1s","burst":9}`, header: from(etag),
				})
				mu.Lock()
				switch got.status {
				case http.StatusOK:
					if other := won[got.header.Get("Etag")]; other != "" {
						t.Errorf("%s and %s both made %s", other, reason, got.header.Get("Etag"))
					}
					won[got.header.Get("Etag")] = reason
				case http.StatusPreconditionFailed:
					lost++
				default:
					t.Errorf("%d %s", got.status, got.body)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(won)+lost != editors*rounds || len(won) == 0 || lost == 0 {
		t.Errorf("%d won and %d lost of %d", len(won), lost, editors*rounds)
	}
	document := string(p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/policy"}).body)
	page, err := p.store.Audit(t.Context(), store.AuditQuery{Limit: editors * rounds})
	must(t, err)
	if len(page.Entries) != len(won) {
		t.Errorf("%d entries of %d versions", len(page.Entries), len(won))
	}
	for i, entry := range page.Entries {
		reason := won[strconv.Quote(strconv.FormatInt(entry.To, 10))]
		if entry.To != int64(len(won)-i) || entry.From != entry.To-1 || entry.Reason != reason || entry.Author != "operator" {
			t.Errorf("entry %+v of a version that %q made", entry, reason)
		}
		if scope := admission.Scope("acme:" + reason); !strings.Contains(document, `"`+string(scope)+`"`) {
			t.Errorf("the limit of %s is not in the last version", scope)
		}
	}
	t.Logf("%d won, %d lost", len(won), lost)
}

// TestTheGlobalLimitTellsWhatPartitionsHave of its tokens.
func TestTheGlobalLimitTellsWhatPartitionsHave(t *testing.T) {
	t.Parallel()
	p := newPlantOf(t, 4)
	p.put("admin", ask{op: "PUT /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "global"}, body: `{"tokens":10,"per":"1s","burst":12}`})
	for scope, want := range map[string]string{"global": "[2.5 2.5 2.5 2.5]", "acme": "<nil>"} {
		config := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": scope}}).object(t)
		if got := fmt.Sprint(config["shares"]); got != want {
			t.Errorf("%s: shares %s, want %s: %v", scope, got, want, config)
		}
	}
}
