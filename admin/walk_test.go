package admin_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
)

// TestEveryOperationAnswersAsDescribed makes every operation of the description succeed at least once; each answer, good
// or bad, is checked against its schema on the way.
func TestEveryOperationAnswersAsDescribed(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	mail, acme := map[string]string{"queue": "mail"}, map[string]string{"tenant": "acme"}
	both := map[string]string{"tenant": "acme", "queue": "mail"}
	for _, part := range []func(*plant){walkMeta, walkJobs, walkLetters, walkPolicy, walkLimits, walkRollout, walkParts, walkNames, walkBreakers, walkSemaphores, walkReservations, walkUsage, walkExplain, walkSessions} {
		part(p)
	}
	for path, names := range map[string]map[string]string{
		"/api/v1/queues/{queue}": mail, "/api/v1/tenants/{tenant}": acme, "/api/v1/tenants/{tenant}/queues/{queue}": both,
	} {
		for _, what := range []string{"/pause", "/suspension"} {
			put, end := ask{op: "PUT " + path + what, path: names, body: `{"for":"10m","reason":"moving"}`}, ask{op: "DELETE " + path + what, path: names}
			p.want(http.StatusNotFound, "operator", end)
			if held := p.want(http.StatusOK, "operator", put).object(t); held["until"] == nil {
				t.Errorf("%v", held)
			}
			holds := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/holds"})
			if !bytes.Contains(holds.body, []byte("moving")) {
				t.Errorf("%s", holds.body)
			}
			p.want(http.StatusNoContent, "operator", end)
			p.want(http.StatusNotFound, "operator", end)
		}
	}
	walkQueues(p)
	walkAdaptive(p)
	walkLoad(p)
	walkAnomalies(p)
	walkForecast(p)
	walkTriggers(p)
	for _, op := range p.operations() {
		if !p.seen.good[op] {
			t.Errorf("%s was never seen to succeed: add it to the walk", op)
		}
	}
}

func walkAdaptive(p *plant) {
	name := map[string]string{"name": "mail-out"}
	freeze, thaw := ask{op: "PUT /api/v1/adaptive/{name}/freeze", path: name, body: `{"reason":"their maintenance"}`}, ask{op: "DELETE /api/v1/adaptive/{name}/freeze", path: name}
	p.want(http.StatusNotFound, "operator", freeze)
	moving(p)
	p.want(http.StatusNotFound, "operator", thaw)
	p.want(http.StatusNoContent, "operator", freeze)
	listed := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/adaptive"})
	for _, part := range []string{`"name":"mail-out"`, `"limit":40`, `"min":5`, "their maintenance"} {
		if !bytes.Contains(listed.body, []byte(part)) {
			p.tb.Errorf("no %s in %s", part, listed.body)
		}
	}
	metrics := p.want(http.StatusOK, "viewer", ask{op: "GET /metrics"})
	for _, part := range []string{`headgate_adaptive_limit{name="mail-out"} 40`, `headgate_adaptive_changes_total{direction="down",name="mail-out"} 0`, `headgate_adaptive_dead_band_total{name="mail-out"} 0`} {
		if !bytes.Contains(metrics.body, []byte(part)) {
			p.tb.Errorf("no %s in the metrics", part)
		}
	}
	p.want(http.StatusNoContent, "operator", thaw)
	override, end := ask{op: "PUT /api/v1/adaptive/{name}/override", path: name, body: `{"limit":12,"for":"10m","reason":"their word"}`}, ask{op: "DELETE /api/v1/adaptive/{name}/override", path: name}
	p.want(http.StatusNotFound, "operator", end)
	p.want(http.StatusNoContent, "operator", override)
	listed = p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/adaptive"})
	for _, part := range []string{`"limit":12`, `"back":40`, "their word"} {
		if !bytes.Contains(listed.body, []byte(part)) {
			p.tb.Errorf("no %s in %s", part, listed.body)
		}
	}
	for _, bad := range []string{`{"limit":41,"for":"10m"}`, `{"limit":12.5,"for":"10m"}`, `{"limit":12,"for":"200h"}`} {
		override.body = bad
		p.want(http.StatusBadRequest, "operator", override)
	}
	p.want(http.StatusNoContent, "operator", end)
}

// walkLoad has a worker tell how busy it is, and a scheduler keep it.
func walkLoad(p *plant) {
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"load":{}}`})
	part := p.store.Partitions()[0]
	_, err := part.Register(p.tb.Context(), "busy", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 1, time.Minute)
	must(p.tb, err)
	var w load.Window
	w.Began(time.Now(), "mail", 2*time.Second)
	w.Ended(time.Now(), "mail", time.Second, true)
	var d load.Window
	d.Ended(time.Now(), "smtp", time.Second, true)
	sample := load.Sample{Use: load.Use{CPU: .5, Memory: .25}, Queues: w.Sum(time.Now()), Downstreams: d.Sum(time.Now())}
	_, err = part.Heartbeat(p.tb.Context(), "busy", time.Minute, sample.Text())
	must(p.tb, err)
	_, err = part.Promote(p.tb.Context(), "s1", time.Minute)
	must(p.tb, err)
	must(p.tb, part.NoteLoad(p.tb.Context(), store.LoadNote{Owner: "s1", Services: map[string]string{
		"mail": load.Of("mail", 3, []load.Sample{sample}).Seen(time.Second, 4).Text(), load.DownstreamHistory("smtp"): load.OfDownstream("smtp", 2, []load.Sample{sample}).Text(),
	}}))
	now := []string{`"workers":1`, `"service":"mail"`, `"cpu_utilization":0.5,"memory_utilization":0.25`, `"concurrent_requests":0,"error_rate":1,"avg_response_time_ms":1000,"p95_response_time_ms":`, `"p95_wait_time_ms":`, `"backpressure_level":1`}
	mail, smtp := map[string]string{"queue": "mail"}, map[string]string{"downstream": "smtp"}
	for _, one := range []struct {
		ask
		parts []string
		none  string
	}{
		{ask{op: "GET /api/v1/load"}, append(now, `"downstreams":[{"service":"smtp","cpu_utilization":0.5`), "history"},
		{ask{op: "GET /api/v1/load/downstreams/{downstream}", path: smtp}, []string{`"service":"smtp"`, `"queue_depth":0`, `"error_rate":1`}, "history"},
		{ask{op: "GET /api/v1/load/downstreams/{downstream}", path: smtp, query: "history=1h"}, []string{`"history":[{"service":"smtp"`, `"queue_depth":2`}, "mail"},
		{ask{op: "GET /api/v1/load/{queue}", path: mail}, now[1:], "history"},
		{ask{op: "GET /api/v1/load/{queue}", path: mail, query: "history=1h"}, append(now[1:], `"history":[{"service":"mail","cpu_utilization":0.5`, `"queue_depth":3`, `"wait_ms":1000,"backpressure_level":4`), "workers"},
	} {
		got := p.want(http.StatusOK, "viewer", one.ask)
		for _, part := range one.parts {
			if !bytes.Contains(got.body, []byte(part)) {
				p.tb.Errorf("no %s in %s", part, got.body)
			}
		}
		if bytes.Contains(got.body, []byte(one.none)) {
			p.tb.Errorf("%s is in %s", one.none, got.body)
		}
	}
	p.want(http.StatusNotFound, "viewer", ask{op: "GET /api/v1/load/{queue}", path: map[string]string{"queue": "nobody-knows"}})
	for _, bad := range []string{"9s", "1h1s"} {
		if got := p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/load/{queue}", path: mail, query: "history=" + bad}); !bytes.Contains(got.body, []byte("allowed is 10s to 1h")) {
			p.tb.Errorf("a history of %s is answered by %s", bad, got.body)
		}
	}
}

func walkMeta(p *plant) {
	for _, path := range []string{"/api/v1/openapi.json", "/api/v1/health/live", "/api/v1/health/ready"} {
		p.want(http.StatusOK, "", ask{op: "GET " + path})
	}
	for _, path := range []string{"/metrics", "/api/v1/doctor", "/api/v1/census", "/api/v1/workers", "/api/v1/schedulers", "/api/v1/stats", "/api/v1/holds", "/api/v1/queues"} {
		p.want(http.StatusOK, "viewer", ask{op: "GET " + path})
	}
	_, err := p.store.Partitions()[0].Promote(p.tb.Context(), "s1", time.Minute)
	must(p.tb, err)
	if got := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/schedulers"}); !bytes.Contains(got.body, []byte(`"s1","holds_timer":true`)) {
		p.tb.Errorf("%s", got.body)
	}
}

func walkJobs(p *plant) {
	p.enqueue("acme", "a/1", "a:2")
	job := map[string]string{"tenant": "acme", "id": "a/1"}
	sight := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/jobs/{tenant}/{id}", path: job}).object(p.tb)
	if sight["place"] != "waiting" || sight["position"] != 1.0 || sight["payload_bytes"] != 12.0 {
		p.tb.Errorf("%v", sight)
	}
	payload := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/jobs/{tenant}/{id}/payload", path: job}).object(p.tb)
	if payload["payload_base64"] != "eyJ0byI6ImFkYSJ9" {
		p.tb.Errorf("%v", payload)
	}
	again := p.want(http.StatusOK, "operator", ask{
		op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"welcome"}`, header: http.Header{"Idempotency-Key": {`"a/1"`}},
	}).object(p.tb)
	if again["decision"] != "duplicate" {
		p.tb.Errorf("%v", again)
	}
	several := p.want(http.StatusOK, "operator", ask{op: batchOp, body: batchOf("a/1", "a/2")}).object(p.tb)
	if several["admitted"] != 1.0 || several["duplicates"] != 1.0 {
		p.tb.Errorf("%v", several)
	}
	p.want(http.StatusOK, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "a/2"}})
	first := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/jobs", query: "limit=1&place=waiting&queue=mail"}).object(p.tb)
	cursor, _ := first["cursor"].(string)
	second := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/jobs", query: "limit=1&place=waiting&queue=mail&cursor=" + cursor})
	if !bytes.Contains(second.body, []byte(`"a:2"`)) {
		p.tb.Errorf("second page: %s", second.body)
	}
	if bad := p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/jobs", query: "cursor=nonsense"}); !bytes.Contains(bad.body, []byte(`"parameter":"cursor"`)) {
		p.tb.Errorf("%s", bad.body)
	}
	p.want(http.StatusOK, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: job, query: "reason=twice"})
	p.want(http.StatusConflict, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: job})
	p.want(http.StatusNotFound, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "never"}})
	p.work(p.tb.Context(), 1, "")
	running := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "a:2"}}).object(p.tb)
	if running["place"] != "running" || running["worker"] != "w1" {
		p.tb.Errorf("%v", running)
	}
	workers := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/workers"})
	if !bytes.Contains(workers.body, []byte(`"held":1`)) {
		p.tb.Errorf("%s", workers.body)
	}
	cancelling := p.want(http.StatusOK, "operator", ask{op: "DELETE /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "a:2"}}).object(p.tb)
	if cancelling["outcome"] != "cancelling" {
		p.tb.Errorf("%v", cancelling)
	}
	p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/tenants/{tenant}", path: map[string]string{"tenant": "acme"}})
	_, err := p.store.Partitions()[0].Reclaim(p.tb.Context(), "w1")
	must(p.tb, err)
}

func walkLetters(p *plant) {
	p.enqueue("acme", "d1", "d2", "d3")
	p.work(p.tb.Context(), 3, store.Kill)
	page := p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/dead-letters", query: "queue=mail&reason=discarded&before=2090-01-01T00:00:00Z"})
	if strings.Count(string(page.body), "bad address") != 3 {
		p.tb.Errorf("%s", page.body)
	}
	letter := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/dead-letters/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "d1"}}).object(p.tb)
	if letter["reason"] != "discarded" {
		p.tb.Errorf("%v", letter)
	}
	redrive := ask{op: "POST /api/v1/dead-letters/redrive", body: `{"keys":[{"tenant":"acme","id":"d1"},{"tenant":"acme","id":"never"}]}`}
	redriven := p.want(http.StatusOK, "operator", redrive).object(p.tb)
	if refused, _ := redriven["refused"].([]any); redriven["redriven"] != 1.0 || len(refused) != 1 {
		p.tb.Errorf("%v", redriven)
	}
	p.want(http.StatusConflict, "viewer", ask{op: "GET /api/v1/dead-letters/{tenant}/{id}", path: map[string]string{"tenant": "acme", "id": "d1"}})
	purged := p.want(http.StatusOK, "admin", ask{op: "POST /api/v1/dead-letters/purge", body: `{"filter":{"queue":"mail","tenant":"acme","before":"2090-01-01T00:00:00Z"}}`}).object(p.tb)
	if purged["purged"] != 2.0 || purged["more"] != false {
		p.tb.Errorf("%v", purged)
	}
}

func walkLimits(p *plant) {
	p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/rate-limit/check", body: `{"scope":"acme:mail:high","tokens":3}`})
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: map[string]string{"scope": "acme:mail"}})
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/status/{scope}", path: map[string]string{"scope": "global"}})
	_, err := p.store.Count(p.tb.Context(), []store.ScopeCount{{Scope: "acme:mail", Allowed: 3, Refused: 1, Tokens: 9}})
	must(p.tb, err)
	counted := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/rate-limit/metrics/{scope}", path: map[string]string{"scope": "acme:mail"}}).object(p.tb)
	if counted["allowed"] != 3.0 || counted["refused"] != 1.0 || len(counted["minutes"].([]any)) != 1 {
		p.tb.Errorf("%v", counted)
	}
	p.want(http.StatusNotFound, "acme-viewer", ask{op: "GET /api/v1/rate-limit/metrics/{scope}", path: map[string]string{"scope": "zeta:mail"}})
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/metrics"})
	p.want(http.StatusNoContent, "admin", ask{op: "POST /api/v1/rate-limit/reset/{scope}", path: map[string]string{"scope": "acme"}})
	walkScales(p)
	walkRecords(p)
}

// walkRecords gives a tenant a record, finds it on every page that tells of limits, and takes it away.
func walkRecords(p *plant) {
	path := map[string]string{"tenant": "zeta"}
	put := ask{op: "PUT /api/v1/records/{tenant}", path: path, body: `{"tier":"premium","priority_weights":{"high":3},"limit":{"tokens":7,"per":"1h","burst":7},"queues":{"mail":{"priority_limits":{"low":{"enabled":false}}}}}`}
	p.want(http.StatusPreconditionRequired, "operator", put)
	put.header = http.Header{"If-None-Match": {"*"}}
	p.want(http.StatusConflict, "operator", put)
	try := ask{op: "POST /api/v1/records/{tenant}/dry-run", path: path, body: put.body}
	p.want(http.StatusConflict, "operator", try)
	before := recording(p)
	p.want(http.StatusForbidden, "viewer", try)
	would := p.want(http.StatusOK, "operator", try)
	for _, part := range []string{`"tenant":"zeta","from":1,"changes":[{`, `"path":"/limit/`, `"forecast":{"minutes":`} {
		if !bytes.Contains(would.body, []byte(part)) {
			p.tb.Errorf("no %s in %s", part, would.body)
		}
	}
	try.body = `{"queues":{"mail":{"priority_limits":{"none":{"tokens":1,"per":"1s"}}}}}`
	if bad := p.want(http.StatusBadRequest, "operator", try); !bytes.Contains(bad.body, []byte("a class of queue mail")) {
		p.tb.Errorf("a class that there is not: %s", bad.body)
	}
	p.want(http.StatusForbidden, "viewer", put)
	p.want(http.StatusForbidden, "acme-viewer", put)
	p.want(http.StatusNotFound, "viewer", ask{op: "GET /api/v1/records/{tenant}", path: path})
	set := p.want(http.StatusOK, "operator", put)
	p.want(http.StatusPreconditionFailed, "operator", put)
	one := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/records/{tenant}", path: path})
	list := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/records", query: "prefix=ze&limit=5"})
	tenant := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/tenants/{tenant}", path: path})
	for _, body := range [][]byte{set.body, one.body, list.body, tenant.body} {
		if !bytes.Contains(body, []byte(`{"tier":"premium","priority_weights":{"high":3},"limit":{"tokens":7,"per":"1h","burst":7}`)) {
			p.tb.Errorf("no record in %s", body)
		}
	}
	if !bytes.Contains(tenant.body, []byte(`"tenant":"zeta","tier":"premium"`)) {
		p.tb.Errorf("another tier than that of its record: %s", tenant.body)
	}
	config := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "zeta"}})
	for _, part := range []string{`"recorded":true`, `"of":"record of tenant zeta"`, `"path":"/limit"`, `"burst":7`} {
		if !bytes.Contains(config.body, []byte(part)) {
			p.tb.Errorf("no %s in %s", part, config.body)
		}
	}
	check := ask{op: "POST /api/v1/rate-limit/check", body: `{"checks":[{"scope":"zeta","tokens":8}]}`}
	if refused := p.want(http.StatusTooManyRequests, "admin", check).object(p.tb); refused["allowed"] != false {
		p.tb.Errorf("8 of 7: %v", refused)
	}
	put.header = http.Header{"If-Match": {one.header.Get("Etag")}}
	put.body = `{"queues":{"mail":{"priority_limits":{"none":{"tokens":1,"per":"1s"}}}}}`
	if bad := p.want(http.StatusBadRequest, "operator", put); !bytes.Contains(bad.body, []byte("a class of queue mail")) {
		p.tb.Errorf("a class that there is not: %s", bad.body)
	}
	put.body = `{"tier":"lead"}`
	if bad := p.want(http.StatusBadRequest, "operator", put); !bytes.Contains(bad.body, []byte(`one of`)) || !bytes.Contains(bad.body, []byte(`premium`)) {
		p.tb.Errorf("a tier that there is not: %s", bad.body)
	}
	put.body = `{"limit":{"tokens":9,"per":"1h"}}`
	p.want(http.StatusOK, "operator", put)
	p.want(http.StatusPreconditionFailed, "operator", put)
	end := ask{op: "DELETE /api/v1/records/{tenant}", path: path, header: http.Header{"If-Match": {"*"}}}
	p.want(http.StatusNoContent, "operator", end)
	p.want(http.StatusNotFound, "operator", end)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: before})
}

// recording has the policy in force have records of tenants, and returns what it was.
func recording(p *plant) (before string) {
	got := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/policy"})
	document := got.object(p.tb)
	delete(document, "version")
	was, err := json.Marshal(document)
	must(p.tb, err)
	document["tenant_records"] = true
	text, err := json.Marshal(document)
	must(p.tb, err)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: string(text)})
	return string(was)
}

func walkScales(p *plant) {
	scale := ask{op: "PUT /api/v1/rate-limit/scale/{scope}", path: map[string]string{"scope": "all"}, body: `{"part":0.25,"for":"10m","reason":"db on fire"}`}
	end := ask{op: "DELETE /api/v1/rate-limit/scale/{scope}", path: scale.path}
	p.want(http.StatusForbidden, "viewer", scale)
	p.want(http.StatusForbidden, "acme-viewer", scale)
	p.want(http.StatusNotFound, "operator", end)
	set := p.want(http.StatusOK, "operator", scale)
	listed := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/rate-limit/scale"})
	holds := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/holds"})
	for _, body := range [][]byte{set.body, listed.body, holds.body} {
		for _, part := range []string{`"scope":"all"`, `"part":0.25`, `"author":"operator"`, `"reason":"db on fire"`, `"until":"2`} {
			if !bytes.Contains(body, []byte(part)) {
				p.tb.Errorf("no %s in %s", part, body)
			}
		}
	}
	own := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/tenants/{tenant}", path: map[string]string{"tenant": "acme"}})
	if !bytes.Contains(own.body, []byte(`"scope":"all","part":0.25,"until":"2`)) || bytes.Contains(own.body, []byte("db on fire")) || bytes.Contains(own.body, []byte("operator")) {
		p.tb.Errorf("a tenant is told of what is scaled for everybody: %s", own.body)
	}
	if metrics := p.want(http.StatusOK, "viewer", ask{op: "GET /metrics"}); !bytes.Contains(metrics.body, []byte(`headgate_limit_scale{of="all"} 0.25`)) {
		p.tb.Error("the metrics do not say that all limits are scaled")
	}
	if limit := p.want(http.StatusOK, "acme-viewer", ask{op: "GET /api/v1/rate-limit/config/{scope}", path: map[string]string{"scope": "acme"}}); !bytes.Contains(limit.body, []byte(`"scaled":{"part":0.25,"until":"2`)) {
		p.tb.Errorf("%s", limit.body)
	}
	for body, told := range map[string]string{
		`{"part":0.001,"for":"10m"}`: "want 0.01", `{"part":2,"for":"10m"}`: "want 1", `{"part":0.5,"for":"25h"}`: "1s to 24h", `{"part":0.5}`: "for",
	} {
		scale.body = body
		if refused := p.want(http.StatusBadRequest, "operator", scale); !bytes.Contains(refused.body, []byte(told)) {
			p.tb.Errorf("%s: no %q in %s", body, told, refused.body)
		}
	}
	p.want(http.StatusNoContent, "operator", end)
}

func walkQueues(p *plant) {
	mail := map[string]string{"queue": "mail"}
	p.enqueue("acme", "q1", "q2")
	queue := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/queues/{queue}", path: mail}).object(p.tb)
	if queue["waiting"] != 3.0 {
		p.tb.Errorf("%v", queue)
	}
	p.want(http.StatusNotFound, "viewer", ask{op: "GET /api/v1/queues/{queue}", path: map[string]string{"queue": "nosuch"}})
	left := p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/queues/{queue}/drain", path: mail}).object(p.tb)
	if left["drained"] != false || left["waiting"] != 3.0 {
		p.tb.Errorf("%v", left)
	}
	refused := p.want(http.StatusTooManyRequests, "operator", ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t"}`}).object(p.tb)
	if refused["reason"] != "paused" {
		p.tb.Errorf("%v", refused)
	}
	p.want(http.StatusBadRequest, "admin", ask{op: "POST /api/v1/queues/{queue}/purge", path: mail, body: `{"confirm":"male"}`})
	purged := p.want(http.StatusOK, "admin", ask{op: "POST /api/v1/queues/{queue}/purge", path: mail, body: `{"confirm":"mail","reason":"test"}`}).object(p.tb)
	if purged["cancelled"] != 3.0 || purged["more"] != false {
		p.tb.Errorf("%v", purged)
	}
	left = p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/queues/{queue}/drain", path: mail}).object(p.tb)
	if left["drained"] != true {
		p.tb.Errorf("%v", left)
	}
	census := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/census"}).object(p.tb)
	if census["conserved"] != true || census["live"] != 0.0 {
		p.tb.Errorf("%v", census)
	}
}
