package admin_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/store"
)

// everyRule is a policy in which every rule says something.
const everyRule = `{
	"global": {"tokens": 100000, "per": "1s", "burst": 100000},
	"tiers": {"standard": {"limit": {"tokens": 500, "per": "1s", "burst": 500}}, "gold": {"limit": {"tokens": 1000, "per": "1s", "burst": 1000}, "priority_weights": {"high": 3}, "max_running": 50}},
	"tenants": {"acme": {"tier": "gold", "limit": {"tokens": 900, "per": "1s", "burst": 900}, "priority_weights": {"high": 2}, "max_running": 7, "dispatch": {"tokens": 50, "per": "1s", "burst": 5}}},
	"queue_limits": {"acme:mail": {"tokens": 800, "per": "1s", "burst": 800}},
	"priority_limits": {"acme:mail:high": {"tokens": 700, "per": "1m", "burst": 700}},
	"overflows": {"acme:aside": {"policy": "spillover", "max_jobs": 2, "max_spilled": 10, "low_water_percent": 50}},
	"max_running": {"acme:mail": 6},
	"queues": {
		"mail": {"max_running": 40, "max_running_per_tenant": 30, "max_wait": "1h", "keep_dead": "24h", "max_dead": 100},
		"tight": {"overflow": {"policy": "reject", "max_jobs": 1}},
		"fresh": {"overflow": {"policy": "drop_oldest", "max_jobs": 1}}
	},
	"downstreams": {"ship": {"max_running": 4, "dispatch": {"tokens": 3, "per": "1s", "burst": 3}, "max_parked": 3}},
	"any_downstream": {"max_running": 9, "max_parked": 100},
	"load": {},
	"triggers": {"deep": {"when": {"metric": "queue_depth", "above": 9}, "do": "pause", "of": "queue mail"}},
	"observe": ["acme:mail"]
}`

// features puts something of every kind into a plant.
func (p *plant) features() {
	t := p.tb
	p.put("admin", ask{op: "PUT /api/v1/policy", body: everyRule, query: "reason=all"})
	n := 0
	job := func(status int, more string) map[string]any {
		n++
		return p.want(status, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","type":"t","id":"f%d",%s}`, n, more)}).object(t)
	}
	wants := func(got map[string]any, name string, value any) {
		if got[name] != value {
			t.Errorf("%s is %v, want %v: %v", name, got[name], value, got)
		}
	}
	// Dead, completed with a result, running and to be cancelled.
	p.enqueue("acme", "dead")
	p.work(t.Context(), 1, store.Kill)
	p.enqueue("acme", "done", "run", "stop")
	c := p.client("1m")
	for _, lease := range c.collect(3) {
		if lease["id"] == "done" {
			p.want(http.StatusOK, "operator", c.ask("complete", fmt.Sprintf(`{"tenant":"acme","id":"done","token":%q,"ran":"5ms","result_base64":"b2s="}`, lease["token"])))
		}
	}
	wants(p.want(http.StatusOK, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "stop"}, query: "reason=enough"}).object(t), "outcome", "cancelling")
	// Parked behind an open breaker, and one too many.
	p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/breakers/{downstream}/force", path: map[string]string{"downstream": "ship"}, body: `{"state":"open","for":"1h","reason":"they move"}`})
	job(http.StatusCreated, `"queue":"mail","downstream":"ship","deadline":"2050-01-01T00:00:00Z","cost":3,"max_attempts":2,"timeout":"1m"`)
	for range 3/len(p.store.Partitions()) - 1 { // Each partition parks its part.
		job(http.StatusCreated, `"queue":"mail","downstream":"ship"`)
	}
	wants(job(http.StatusTooManyRequests, `"queue":"mail","downstream":"ship"`), "reason", "breaker")
	// Aside, refused and dropped by overflow; later; unique.
	for _, place := range []string{"waiting", "waiting", "spilled"} {
		wants(job(http.StatusCreated, `"queue":"aside"`), "place", place)
	}
	job(http.StatusCreated, `"queue":"tight"`)
	wants(job(http.StatusTooManyRequests, `"queue":"tight"`), "reason", "overflow")
	job(http.StatusCreated, `"queue":"fresh"`)
	wants(job(http.StatusCreated, `"queue":"fresh"`), "dropped", 1.0)
	wants(job(http.StatusCreated, `"queue":"mail","delay":"1h","priority":"high"`), "place", "later")
	job(http.StatusCreated, `"queue":"mail","unique":{"key":"k","for":"1h","release":"end"}`)
	wants(job(http.StatusTooManyRequests, `"queue":"mail","unique":{"key":"k"}`), "reason", "unique")
	// Too dear for good, and too early.
	job(http.StatusUnprocessableEntity, `"queue":"mail","cost":5000`)
	// Held back by operators, everywhere.
	for _, at := range []struct {
		path  string
		names map[string]string
	}{
		{"/api/v1/queues/{queue}", map[string]string{"queue": "mail"}},
		{"/api/v1/tenants/{tenant}", map[string]string{"tenant": "acme"}},
		{"/api/v1/tenants/{tenant}/queues/{queue}", map[string]string{"tenant": "acme", "queue": "mail"}},
	} {
		for _, what := range []string{"/pause", "/suspension"} {
			p.want(http.StatusOK, "operator", ask{op: "PUT " + at.path + what, path: at.names, body: `{"for":"1h","reason":"secret note"}`})
		}
	}
	wants(job(http.StatusTooManyRequests, `"queue":"mail"`), "reason", "paused")
	p.put("admin", ask{op: "PUT /api/v1/policy/rollout", body: `{"id":"strict","percent":100,"shadow":true,"rules":{"tenants":{"acme":{"limit":{"tokens":1,"per":"1h","burst":1}}}}}`})
	_, err := p.store.Count(t.Context(), []store.ScopeCount{{Scope: "acme:mail", Allowed: 3, Refused: 1, Tokens: 9}})
	must(t, err)
}

// TestWhatEveryFeatureShowsIsAsDescribed: with something of every kind planted, each answer of each operation that looks has the form
// that the description gives it, for whoever looks.
func TestWhatEveryFeatureShowsIsAsDescribed(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *plant) { //nolint:thelper // It is a test.
		p.features()
		names := map[string][]string{
			"tenant": {"acme", "nobody"}, "queue": {"mail", "aside", "tight", "fresh"}, "downstream": {"ship"}, "trigger": {"deep", "none"}, "worker": {"w1"}, "tier": {"gold"}, "version": {"1"},
			"id":    {"dead", "done", "run", "stop", "f1", "f6", "f10"},
			"scope": {"global", "acme", "acme:mail", "acme:mail:high"}, "kind": {"job", "tenant", "scope", "downstream"}, "name": {"acme", "acme:f1", "acme:dead", "acme:run", "acme:mail", "ship"},
		}
		said := map[string]*bytes.Buffer{}
		for _, op := range p.operations() {
			method, path, _ := strings.Cut(op, " ")
			if method != http.MethodGet {
				continue
			}
			var all []map[string]string
			all = append(all, map[string]string{})
			for name, values := range names {
				if strings.Contains(path, "{"+name+"}") {
					all = combined(all, name, values)
				}
			}
			for _, who := range []string{"viewer", "operator", "acme-viewer", "acme-admin"} {
				if said[who] == nil {
					said[who] = &bytes.Buffer{}
				}
				for _, at := range all {
					got := p.call(who, ask{op: op, path: at})
					if got.status >= http.StatusInternalServerError {
						t.Errorf("%s %v as %s: %d %s", op, at, who, got.status, got.body)
					}
					said[who].Write(got.body)
				}
			}
		}
		// What was planted is what was looked at, and notes and texts are for whoever may see them.
		for who, words := range map[string][]string{
			"viewer":      {`"rate":`, `"burst":`, `"spilled":1`, `"place":"running"`, "secret note", `"cancelled":true`, "!bad address", "!b2s="},
			"operator":    {"bad address", `"result_base64":"b2s="`, "secret note"},
			"acme-viewer": {`"kind":"pause"`, `"kind":"breaker"`, "an operator holds it back", "!bad address"},
			"acme-admin":  {"bad address"},
		} {
			for _, word := range words {
				text, absent := strings.CutPrefix(word, "!")
				if bytes.Contains(said[who].Bytes(), []byte(text)) == absent {
					t.Errorf("%s sees %s: %v", who, text, !absent)
				}
			}
		}
	})
}

// combined returns each way with each value of a name.
func combined(all []map[string]string, name string, values []string) []map[string]string {
	var more []map[string]string
	for _, way := range all {
		for _, value := range values {
			next := map[string]string{name: value}
			maps.Copy(next, way)
			more = append(more, next)
		}
	}
	return slices.Clip(more)
}
