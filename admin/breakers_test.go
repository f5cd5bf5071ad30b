package admin_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

func walkBreakers(p *plant) {
	smtp := map[string]string{"downstream": "smtp:eu/1"}
	get := ask{op: "GET /api/v1/breakers/{downstream}", path: smtp}
	reset := ask{op: "POST /api/v1/breakers/{downstream}/reset", path: smtp, body: `{"reason":"they are back"}`}
	p.want(http.StatusNotFound, "viewer", get)
	p.want(http.StatusNotFound, "operator", reset)
	force := ask{op: "POST /api/v1/breakers/{downstream}/force", path: smtp}
	for _, bad := range []string{`{"state":"open"}`, `{"state":"half-open","reason":"x"}`, `{"state":"open","reason":"x","for":"9000h"}`, `{"state":"open","reason":""}`} {
		force.body = bad
		p.want(http.StatusBadRequest, "operator", force)
	}
	force.body = `{"state":"open","for":"30m","reason":"they move"}`
	opened := p.want(http.StatusOK, "operator", force).object(p.tb)
	if opened["state"] != "open" || opened["forced"] != true || opened["reason"] != "they move" || opened["limit"] != 0.0 {
		p.tb.Errorf("%v", opened)
	}
	until, err := time.Parse(time.RFC3339Nano, opened["until"].(string))
	if left := time.Until(until); err != nil || left < 29*time.Minute || left > 30*time.Minute {
		p.tb.Errorf("until %v: %v", opened["until"], err)
	}
	force.body = `{"state":"closed","reason":"their page lies"}`
	if closed := p.want(http.StatusOK, "operator", force).object(p.tb); closed["state"] != "closed" || closed["forced"] != true || closed["until"] != nil || closed["limit"] != nil {
		p.tb.Errorf("%v", closed)
	}
	if again := p.want(http.StatusOK, "operator", reset).object(p.tb); again["forced"] != false || again["cause"] != "reset" {
		p.tb.Errorf("%v", again)
	}
	p.want(http.StatusOK, "viewer", get)
	list, _ := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/breakers"}).object(p.tb)["breakers"].([]any)
	if len(list) != 1 {
		p.tb.Errorf("%v", list)
	}
}

// TestWhoChangedABreakerIsAudited: each change has one entry, by the credential that made it; a refused one has none, and
// versions of the policy beside them are told of as before.
func TestWhoChangedABreakerIsAudited(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	smtp := map[string]string{"downstream": "smtp"}
	p.put("operator", ask{op: "PUT /api/v1/tenants/{tenant}", path: map[string]string{"tenant": "acme"}, body: `{"tier":"basic"}`, query: "reason=small"})
	for who, status := range map[string]int{"viewer": http.StatusForbidden, "acme-admin": http.StatusForbidden, "operator": http.StatusOK} {
		p.want(status, who, ask{op: "POST /api/v1/breakers/{downstream}/force", path: smtp, body: `{"state":"open","for":"1h","reason":"by ` + who + `"}`})
	}
	p.want(http.StatusOK, "admin", ask{op: "POST /api/v1/breakers/{downstream}/reset", path: smtp, body: `{"reason":"over"}`})
	page, err := p.store.Audit(t.Context(), store.AuditQuery{})
	must(t, err)
	want := []store.AuditEntry{
		{Action: store.AuditReset, Downstream: "smtp", Author: "admin", Reason: "over"},
		{Action: store.AuditOpen, Downstream: "smtp", For: time.Hour, Author: "operator", Reason: "by operator"},
		{Action: store.AuditPolicy, To: 1, Author: "operator", Reason: "small"},
	}
	if len(page.Entries) != len(want) {
		t.Fatalf("%+v", page.Entries)
	}
	for i, got := range page.Entries {
		if since := time.Since(got.At); since < -time.Minute || since > time.Minute {
			t.Errorf("an entry of %s", got.At)
		}
		w := want[i]
		if got.Action != w.Action || got.Downstream != w.Downstream || got.For != w.For || got.To != w.To || got.Author != w.Author || got.Reason != w.Reason {
			t.Errorf("entry %d is %+v, want %+v", i, got, w)
		}
	}
	shown, _ := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/audit"}).object(t)["entries"].([]any)
	if entry, _ := shown[1].(map[string]any); entry["action"] != "open" || entry["for_ms"] != 3600000.0 || entry["to"] != nil || entry["from"] != nil {
		t.Errorf("%v", shown[1])
	}
	versions, _ := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/policy/versions"}).object(t)["versions"].([]any)
	if version, _ := versions[0].(map[string]any); len(versions) != 1 || version["author"] != "operator" || version["reason"] != "small" {
		t.Errorf("%v", versions)
	}
}

// TestAForcedBreakerHoldsJobsBack: what is forced over HTTP is what fill asks.
func TestAForcedBreakerHoldsJobsBack(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	smtp := map[string]string{"downstream": "smtp"}
	p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/breakers/{downstream}/force", path: smtp, body: `{"state":"open","reason":"they move"}`})
	p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t","id":"a","downstream":"smtp"}`})
	_, err := p.store.Partitions()[0].Register(t.Context(), "w1", mailPool, 1, time.Minute)
	must(t, err)
	read := func() int {
		leases, err := p.store.Partitions()[0].Read(t.Context(), "w1", mailPool.ID(), 1, -1, false)
		must(t, err)
		return len(leases)
	}
	if n := read(); n != 0 {
		t.Errorf("%d jobs run though the breaker is open", n)
	}
	job := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/breakers/{downstream}", path: smtp}).object(t)
	if job["waiting"] != 1.0 {
		t.Errorf("%v", job)
	}
	p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/breakers/{downstream}/reset", path: smtp, body: `{"reason":"they have moved"}`})
	if n := read(); n != 1 {
		t.Errorf("%d jobs run after the reset", n)
	}
}

// TestWhatCallsFailedByIsForOperators: what a receiver has said may be anything, so those who may only look do not see it.
func TestWhatCallsFailedByIsForOperators(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	config, err := breaker.Config{}.Complete()
	must(t, err)
	_, _, err = p.store.Partitions()[0].ReportOutcomes(t.Context(), store.Reporter{Name: "w"}, []store.Outcomes{{
		Downstream: "smtp", Config: config, Report: breaker.Report{Sequence: 1, Counts: breaker.Counts{Failures: 2}, Streak: 2},
		Errors: []store.CallError{{Text: "550 no such user", Count: 2}},
	}})
	must(t, err)
	smtp := map[string]string{"downstream": "smtp"}
	for who, sees := range map[string]bool{"viewer": false, "operator": true, "admin": true} {
		for _, question := range []ask{
			{op: "GET /api/v1/breakers/{downstream}", path: smtp},
			{op: "GET /api/v1/breakers", query: "state=closed"},
			{op: "GET /api/v1/explain/{kind}/{name}", path: map[string]string{"kind": "downstream", "name": "smtp"}},
		} {
			text, err := json.Marshal(p.want(http.StatusOK, who, question).object(t))
			must(t, err)
			if strings.Contains(string(text), "550 no such user") != sees {
				t.Errorf("%s of %s: %s", question.op, who, text)
			}
		}
	}
	if list, _ := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/breakers", query: "state=open"}).object(t)["breakers"].([]any); len(list) != 0 {
		t.Errorf("open ones: %v", list)
	}
	p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/breakers", query: "state=ajar"})
}
