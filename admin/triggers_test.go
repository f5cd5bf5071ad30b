package admin_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
)

// deepTrigger is one as it is stored.
const deepTrigger = `{"when":{"metric":"queue_depth","of":"queue mail","above":9,"for":"10s"},"do":"pause","of":"queue mail"}`

// walkTriggers stores a trigger, has it act, tries it, and takes it away.
func walkTriggers(p *plant) {
	name := map[string]string{"trigger": "deep"}
	put, end := ask{op: "PUT /api/v1/triggers/{trigger}", path: name, body: deepTrigger}, ask{op: "DELETE /api/v1/triggers/{trigger}", path: name}
	try := ask{op: "POST /api/v1/triggers/{trigger}/dry-run", path: name, body: deepTrigger}
	loading(p)
	p.put("operator", put)
	part := p.store.Partitions()[0]
	_, err := part.Promote(p.tb.Context(), "s1", time.Minute)
	must(p.tb, err)
	version, err := p.store.PolicyInForce(p.tb.Context())
	must(p.tb, err)
	note := store.TriggerNote{Owner: "s1", Version: version, Name: "deep", Life: time.Minute, Do: "pause", Of: "queue mail", Why: "it is 512"}
	must(p.tb, p.store.NoteTrigger(p.tb.Context(), note))
	figures := load.Figures{Use: load.Unknown, Depth: 500, Running: -1, ErrorRate: -1, Average: -1, P95: -1, WaitP95: -1, Wait: -1}
	must(p.tb, part.NoteLoad(p.tb.Context(), store.LoadNote{Owner: "s1", Services: map[string]string{"mail": figures.Text()}}))
	for _, one := range []struct {
		ask
		parts []string
	}{
		{ask{op: "GET /api/v1/triggers"}, []string{`"name":"deep"`, `"active":true`, `"why":"it is 512"`, `"own":{"when":{"metric":"queue_depth"`}},
		{ask{op: "GET /api/v1/triggers/{trigger}", path: name}, []string{`"above":9`}},
		{try, []string{`"points":`, `"most":500`, `"fired":0`}},
		{ask{op: "GET /metrics"}, []string{`headgate_trigger_active{name="deep"} 1`}},
	} {
		got := p.want(http.StatusOK, "operator", one.ask)
		for _, text := range one.parts {
			if !bytes.Contains(got.body, []byte(text)) {
				p.tb.Errorf("%s: no %s in %s", one.op, text, got.body)
			}
		}
	}
	p.put("operator", end)
	if listed := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/triggers"}); !bytes.Contains(listed.body, []byte(`"active":true`)) {
		p.tb.Errorf("what acts still is not in %s", listed.body)
	}
	note.Version, note.Life = version+1, 0
	must(p.tb, p.store.NoteTrigger(p.tb.Context(), note))
	if listed := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/triggers"}); string(bytes.TrimSpace(listed.body)) != `{"triggers":[]}` {
		p.tb.Errorf("of none there is %s", listed.body)
	}
}

// TestTriggersAreEditedByWhoMay: with the version that was looked at, by an operator, and only what a policy may have.
func TestTriggersAreEditedByWhoMay(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	name := map[string]string{"trigger": "deep"}
	put, end := ask{op: "PUT /api/v1/triggers/{trigger}", path: name, body: deepTrigger}, ask{op: "DELETE /api/v1/triggers/{trigger}", path: name}
	get, try := ask{op: "GET /api/v1/triggers/{trigger}", path: name}, ask{op: "POST /api/v1/triggers/{trigger}/dry-run", path: name, body: deepTrigger}
	says := func(got reply, text string) {
		t.Helper()
		if !bytes.Contains(got.body, []byte(text)) {
			t.Errorf("no %s in %s", text, got.body)
		}
	}
	put.header = from(p.inForce())
	says(p.want(http.StatusBadRequest, "operator", put), `none without a load`)
	loading(p)
	p.want(http.StatusNotFound, "viewer", get)
	for _, role := range []string{"viewer", "producer", "worker"} {
		put.header, end.header = from(p.inForce()), from(p.inForce())
		p.want(http.StatusForbidden, role, put)
		p.want(http.StatusForbidden, role, end)
		p.want(http.StatusForbidden, role, try)
	}
	put.header = nil
	p.want(http.StatusPreconditionRequired, "operator", put)
	put.header = from(`"777"`)
	p.want(http.StatusPreconditionFailed, "operator", put)
	p.put("operator", put)
	first := p.want(http.StatusOK, "viewer", get)
	says(first, `"above":9`)
	changed := put
	changed.body = `{"when":{"metric":"queue_depth","of":"queue mail","above":20},"do":"pause","of":"queue mail"}`
	changed.header = from(first.header.Get("ETag"))
	p.want(http.StatusOK, "operator", changed)
	p.want(http.StatusPreconditionFailed, "operator", changed)
	says(p.want(http.StatusOK, "viewer", get), `"above":20`)
	for body, text := range map[string]string{
		`{"when":{"metric":"moon","above":9},"do":"pause","of":"queue mail"}`:                                                    `triggers.deep.when.metric`,
		`{"when":{"metric":"queue_depth"},"do":"pause","of":"queue mail"}`:                                                       `neither or both of above and below`,
		`{"when":{"metric":"queue_depth","above":9},"do":"dance","of":"queue mail"}`:                                             `triggers.deep.do`,
		`{"when":{"metric":"queue_depth","above":9},"do":"reduce_limit","of":"global","by":-2}`:                                  `-0.99 to -0.01`,
		`{"when":{"metric":"queue_depth","above":9,"for":"2h"},"do":"pause","of":"queue mail"}`:                                  `triggers.deep.when.for`,
		`{"when":{"metric":"queue_depth","above":9},"until":{"below":10},"do":"pause","of":"queue mail"}`:                        `triggers.deep.until`,
		`{"when":{"metric":"queue_depth","above":9},"do":"pause","of":"queue mail","priority":1001}`:                             `1 to 1000`,
		`{"when":{"metric":"queue_depth","above":9},"do":"pause","of":"queue mail","whom":"me"}`:                                 `triggers.deep.whom`,
		`{"when":{"metric":"queue_depth","above":9},"do":"pause","of":"tenant acme"}`:                                            `triggers.deep.of`,
		`{"when":{"metric":"breaker_state","of":"queue mail","above":1},"do":"pause","of":"downstream smtp"}`:                    `whose circuit breaker it is`,
		`{"when":{"metric":"queue_depth","above":9},"do":"shed","of":"queue mail"}`:                                              `with a pressure`,
		`{"when":{"metric":"backpressure_level","of":"queue mail","above":2},"do":"reduce_limit","of":"downstream x","by":-0.5}`: `with a pressure`,
	} {
		put.body, put.header, try.body = body, from(p.inForce()), body
		says(p.want(http.StatusBadRequest, "operator", put), text)
		says(p.want(http.StatusBadRequest, "operator", try), text)
	}
	try.body = `{"when":{"metric":"redis_memory","above":0.9},"do":"pause","of":"queue mail"}`
	says(p.want(http.StatusOK, "operator", try), `"metric":"redis_memory","of":"global","points":0`)
	try.body = `{"when":{"metric":"breaker_state","of":"downstream smtp","above":0},"do":"pause","of":"queue mail"}`
	says(p.want(http.StatusOK, "operator", try), `"of":"downstream smtp","points":3601`)
	end.header = nil
	p.want(http.StatusPreconditionRequired, "operator", end)
	p.put("operator", end)
	end.header = from(p.inForce())
	p.want(http.StatusNotFound, "operator", end)
}
