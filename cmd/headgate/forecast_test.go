package main

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// asked notes what queues were asked for in so many days up to now, as the holder of the timer lease does; ago is in points, 0 for the one that is just over.
func asked(t *testing.T, s store.Deployment, days int, of func(ago int) map[string]store.Decided) {
	t.Helper()
	part := s.Partitions()[0]
	owner, _, err := part.TimerLease(t.Context())
	must(t, err)
	if owner == "" {
		owner = "s1"
		_, err = part.Promote(t.Context(), owner, time.Minute)
		must(t, err)
	}
	now, err := s.Time(t.Context())
	must(t, err)
	for ago := range days * forecast.Day {
		must(t, s.NoteRates(t.Context(), store.RateNote{Owner: owner, At: now.Truncate(store.RateStep).Add(-store.RateStep * time.Duration(1+ago)), Queues: of(ago)}))
	}
}

// TestForecastCommand: of a queue with a step at noon of each day, of one that is new, of one without anything, and of none; the same over HTTP.
func TestForecastCommand(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "forecast"); out.stdout != "there is no queue\n" {
		t.Errorf("%s", out.stdout)
	}
	p.enqueue("a")
	if out := p.run(cli.ExitNothing, "forecast mail"); !strings.Contains(out.stderr, `2 days of points, and there are 0.0; the policy has nobody keep what queues are asked for: {"anomalies": {"forecast": true}} has it kept`) {
		t.Errorf("%s", out.stderr)
	}
	if out := p.run(cli.ExitNothing, "forecast nobody"); !strings.Contains(out.stderr, "headgate queue list tells which there are") {
		t.Errorf("%s", out.stderr)
	}
	_, err := rollout.Put(t.Context(), p.store, policy.Policy{Anomalies: &policy.AnomalyRules{Forecast: true}, Queues: map[string]policy.Queue{"new": {}}}, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	_, err = p.store.Partitions()[0].Register(t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "new", Weight: 1}}}, 1, time.Minute)
	must(t, err)
	asked(t, p.store, 3, func(ago int) map[string]store.Decided {
		of := map[string]store.Decided{"mail": {Allowed: 600, Refused: 60}}
		if ago%forecast.Day == forecast.Day-2 { // In twenty minutes, each day.
			of["mail"] = store.Decided{Allowed: 1200}
		}
		if ago < 70 {
			of["new"] = store.Decided{Allowed: 10}
		}
		return of
	})
	out := p.run(cli.ExitOK, "forecast mail").stdout
	for _, part := range []string{"66", "120", "the last ten minutes had 66 a minute; most admitted in 3.0 days were 120, on 20", "forecasts of the last day were 0 a minute away (0.0% of what came), yesterday's figures 0 (0.0%)"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	one := p.object(cli.ExitOK, "forecast mail")
	checkKeys(t, "a forecast", one, strings.Fields("days error last_per_minute most_admitted_at most_admitted_per_minute peak_at peak_per_minute points queue"))
	points, _ := one["points"].([]any)
	if one["peak_per_minute"] != 120.0 || len(points) != forecast.Horizon {
		t.Fatalf("%v", one)
	}
	first, _ := points[0].(map[string]any)
	checkKeys(t, "a point", first, strings.Fields("at per_minute yesterday_per_minute"))
	if second, _ := points[1].(map[string]any); first["per_minute"] != 66.0 || second["at"] != one["peak_at"] {
		t.Errorf("%v", points)
	}
	if out := p.run(cli.ExitNothing, "forecast new"); !strings.Contains(out.stderr, "queue new: no forecast: a day to go by and one to test it on are needed, 2 days of points, and there are 0.5") || strings.Contains(out.stderr, "policy") {
		t.Errorf("%s", out.stderr)
	}
	all := p.run(cli.ExitOK, "forecast").stdout
	flat := strings.Join(strings.Fields(strings.ReplaceAll(all, "│", " ")), " ")
	if !strings.Contains(flat, "mail 66 120 ") || !strings.Contains(flat, "new 1 - - 1 - - 0.5") {
		t.Errorf("%s", all)
	}
	d := &deployment{t: t, where: p.where, store: p.store}
	server := addressOf(d, "serve", "--address", "127.0.0.1:0", "--insecure-no-auth")
	for line, path := range map[string]string{"forecast mail": "/forecast/mail", "forecast": "/forecast"} {
		shown, told := p.object(cli.ExitOK, line), decode(t, call(t, http.MethodGet, server+"/api/v1"+path, "", http.StatusOK))
		if !reflect.DeepEqual(shown, told) {
			t.Errorf("headgate %s shows\n%v\nand GET %s\n%v", line, shown, path, told)
		}
	}
	if got := call(t, http.MethodGet, server+"/api/v1/forecast/new", "", http.StatusConflict); !strings.Contains(got, "there are 0.5") {
		t.Errorf("%s", got)
	}
	metrics := call(t, http.MethodGet, server+"/metrics", "", http.StatusOK)
	for _, part := range []string{
		"headgate_forecast_jobs_per_second{queue_id=\"mail\"} 2\n", "headgate_forecast_most_admitted_per_second{queue_id=\"mail\"} 2\n", "headgate_forecast_error_ratio{queue_id=\"mail\"} 0\n",
	} {
		if !strings.Contains(metrics, part) {
			t.Errorf("no %q in the metrics", part)
		}
	}
	if strings.Contains(metrics, `headgate_forecast_jobs_per_second{queue_id="new"}`) {
		t.Error("a queue without a forecast has a metric of one")
	}
}
