package admin_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// scan asks, as a credential, for so many jobs of others.
func (p *plant) scan(who string, n int) {
	p.tb.Helper()
	for i := range n {
		if got := p.raw(http.MethodGet, fmt.Sprintf("/api/v1/jobs/other/%d", i), p.keys[who], "", nil); got.status != http.StatusNotFound {
			p.tb.Fatalf("%d %s", got.status, got.body)
		}
	}
}

// TestAScanIsToldOf: a tenant's credential that asks for many jobs of others, once though it goes on; one that asks for the same one again and
// again, or for as many as it may, is none.
func TestAScanIsToldOf(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, ended := p.listen(ctx)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"anomalies":{"max_unknown":10}}`})
	var of store.Stretch[store.Anomaly]
	for len(of.Entries) == 0 { // The server learns of the policy, and a minute may end between two calls.
		for range 20 {
			p.scan("viewer", 1)
		}
		p.scan("operator", 10)
		p.scan("acme-viewer", 12)
		var err error
		of, err = p.store.AnomaliesAfter(t.Context(), "", 10)
		must(t, err)
	}
	a := of.Entries[0]
	if a.Kind != "scope_scan" || a.Of != "credential" || a.Name != "acme-viewer (tenant acme)" || a.Rate != 11 || a.Usual != 10 || time.Since(a.Minute) > time.Hour {
		t.Errorf("%+v", a)
	}
	p.scan("acme-viewer", 20)
	if text := p.metrics(); !strings.Contains(text, `headgate_anomalies_total{kind="scope_scan"} 1`+"\n") {
		t.Error("there is no metric of it")
	}
	stop()
	must(t, <-ended)
	if of, err := p.store.AnomaliesAfter(t.Context(), "", 10); err != nil || len(of.Entries) != 1 {
		t.Errorf("%+v, %v", of.Entries, err)
	}
}

// TestNobodyIsCountedWhereRatesAreNotWatched.
func TestNobodyIsCountedWhereRatesAreNotWatched(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{}`})
	p.scan("acme-viewer", 2000)
	if text := p.metrics(); strings.Contains(text, "headgate_anomalies_total") {
		t.Error("there is a metric of it")
	}
	if of, err := p.store.AnomaliesAfter(t.Context(), "", 10); err != nil || len(of.Entries) != 0 {
		t.Errorf("%+v, %v", of.Entries, err)
	}
}

// walkAnomalies lists rates that were not usual.
func walkAnomalies(p *plant) {
	minute := time.Date(2031, 5, 4, 12, 1, 0, 0, time.UTC)
	_, err := p.store.NoteAnomalies(p.tb.Context(), []store.Anomaly{
		{Kind: "surge", Of: "tenant", Name: "acme", Minute: minute, Rate: 120, Usual: 12.5, Deviation: 3.5, Score: 30.7},
		{Kind: "silence", Of: "deployment", Minute: minute, Usual: 400, Deviation: 40, Score: -10},
	})
	must(p.tb, err)
	surge := `"kind":"surge","of":"tenant","name":"acme","minute":"2031-05-04T12:01:00Z","rate":120,"usual":12.5,"deviation":3.5,"score":30.7,"at":`
	all := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/anomalies"}).body
	if !bytes.Contains(all, []byte(surge)) || !bytes.Contains(all, []byte(`"of":"deployment","minute"`)) || bytes.Index(all, []byte("surge")) < bytes.Index(all, []byte("silence")) {
		p.tb.Errorf("%s", all)
	}
	if got := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/anomalies", query: "kind=surge"}).body; bytes.Contains(got, []byte("silence")) || !bytes.Contains(got, []byte(surge)) {
		p.tb.Errorf("%s", got)
	}
	if got := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/anomalies", query: "limit=1"}).body; bytes.Contains(got, []byte("surge")) {
		p.tb.Errorf("%s", got)
	}
	p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/anomalies", query: "kind=odd"})

	_, err = p.store.Count(p.tb.Context(), []store.ScopeCount{{Queue: "mail", Allowed: 3, Tenants: []string{"acme", "bee"}, Jobs: []string{"acme:1", "acme:2", "bee:1"}, Watched: true}})
	must(p.tb, err)
	queue := p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/queues/{queue}", path: map[string]string{"queue": "mail"}}).body
	if !bytes.Contains(queue, []byte(`_hour":{"tenants":2,"jobs":3}`)) {
		p.tb.Errorf("%s", queue)
	}
	if text := p.metrics(); !strings.Contains(text, `headgate_queue_distinct_tenants{hour="this",queue_id="mail"} 2`) && !strings.Contains(text, `headgate_queue_distinct_tenants{hour="last",queue_id="mail"} 2`) ||
		!strings.Contains(text, `headgate_queue_distinct_jobs{hour="this",queue_id="mail"} 3`) && !strings.Contains(text, `headgate_queue_distinct_jobs{hour="last",queue_id="mail"} 3`) {
		p.tb.Errorf("%s", text)
	}
	p.want(http.StatusForbidden, "acme-viewer", ask{op: "GET /api/v1/anomalies"})
}

// walkForecast has two days of points noted, and asks for a forecast before and after.
func walkForecast(p *plant) {
	one := ask{op: "GET /api/v1/forecast/{queue}", path: map[string]string{"queue": "mail"}}
	if got := p.want(http.StatusConflict, "viewer", one).body; !bytes.Contains(got, []byte("2 days of points, and there are 0.0; the policy has nobody keep")) {
		p.tb.Errorf("%s", got)
	}
	p.put("admin", ask{op: "PUT /api/v1/policy", body: `{"anomalies":{"forecast":true},"load":{}}`})
	_, err := p.store.Partitions()[0].Promote(p.tb.Context(), "s1", time.Minute)
	must(p.tb, err)
	now, err := p.store.Time(p.tb.Context())
	must(p.tb, err)
	for ago := range 2*int(24*time.Hour/store.RateStep) + 1 {
		queues := map[string]store.Decided{"mail": {Allowed: 90, Refused: 10}}
		must(p.tb, p.store.NoteRates(p.tb.Context(), store.RateNote{Owner: "s1", At: now.Truncate(store.RateStep).Add(-store.RateStep * time.Duration(1+ago)), Queues: queues}))
	}
	for _, part := range []string{`"queue":"mail","points":[{"at":"`, `"per_minute":10,"yesterday_per_minute":10}`, `"peak_per_minute":10,"peak_at":`, `"most_admitted_per_minute":9`, `"error":{"mean_per_minute":0,"part":0,`} {
		for _, op := range []ask{one, {op: "GET /api/v1/forecast"}} {
			if got := p.want(http.StatusOK, "viewer", op).body; !bytes.Contains(got, []byte(part)) {
				p.tb.Errorf("no %s in %s", part, got)
			}
		}
	}
	p.want(http.StatusBadRequest, "viewer", ask{op: "GET /api/v1/forecast", query: "limit=1001"})
	p.want(http.StatusNotFound, "viewer", ask{op: "GET /api/v1/forecast/{queue}", path: map[string]string{"queue": "nobody-knows"}})
	p.want(http.StatusForbidden, "acme-viewer", one)
}
