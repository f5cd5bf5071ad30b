package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// busy has a worker of queue mail tell how busy it is, and the same noted as a point of the history with some other depth.
func (p *plant) busy(depth int64) {
	p.t.Helper()
	_, err := rollout.Put(p.t.Context(), p.store, policy.Policy{Load: &policy.LoadRules{}}, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(p.t, err)
	part := p.store.Partitions()[0]
	_, err = part.Register(p.t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 0, time.Minute)
	must(p.t, err)
	var w load.Window
	for i := range 4 {
		w.Began(time.Now(), "mail", time.Minute)
		w.Ended(time.Now(), "mail", time.Second, i == 0)
	}
	var d load.Window
	d.Began(time.Now(), "smtp", 3*time.Minute)
	d.Ended(time.Now(), "smtp", 2*time.Second, false)
	sample := load.Sample{Use: load.Use{CPU: .5, Memory: .25}, Queues: w.Sum(time.Now()), Downstreams: d.Sum(time.Now())}
	_, err = part.Heartbeat(p.t.Context(), "w", time.Minute, sample.Text())
	must(p.t, err)
	_, err = part.Promote(p.t.Context(), "s1", time.Minute)
	must(p.t, err)
	must(p.t, part.NoteLoad(p.t.Context(), store.LoadNote{Owner: "s1", Services: map[string]string{
		"mail": load.Of("mail", depth, []load.Sample{sample}).Seen(41*time.Second, admission.PressureHigh).Text(), load.DownstreamHistory("smtp"): load.OfDownstream("smtp", 9, []load.Sample{sample}).Text(),
	}}))
}

func TestLoadCommand(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "load"); out.stdout != "there is no queue\n" {
		t.Errorf("%s", out.stdout)
	}
	p.enqueue("a", "b")
	if out := p.run(cli.ExitOK, "load"); !strings.Contains(out.stdout, "no worker tells how busy it is") || !strings.Contains(out.stdout, "mail") {
		t.Errorf("%s", out.stdout)
	}
	p.busy(8)
	for line, parts := range map[string][]string{
		"load":                    {"mail", " 2 ", "50.0%", "25.0%", "1s", "wait p95", "58.93s", "█", "downstream", "smtp", "2s", "3m1.7651s"},
		"load --downstream smtp":  {"of smtp", "waiting", " 0 ", " 9 ", "50.0%", "2s", "█"},
		"load mail --history 10m": {"waiting", "running", "50.0%", "25.0%", "p95", "█", "▅", "▃", " 8 ", "wait ", "41s", "level", "NONE", "HIGH"},
	} {
		out := p.run(cli.ExitOK, line).stdout
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("no %q in what headgate %s says:\n%s", part, line, out)
			}
		}
	}
	one := p.object(cli.ExitOK, "load mail")
	checkKeys(t, "the load of a queue", one, strings.Fields("avg_response_time_ms backpressure_level concurrent_requests cpu_utilization error_rate history memory_utilization p95_response_time_ms p95_wait_time_ms queue_depth service timestamp"))
	points, _ := one["history"].([]any)
	if len(points) != 1 || one["queue_depth"] != 2.0 || one["error_rate"] != .25 || one["backpressure_level"] != 1.0 {
		t.Errorf("%v", one)
	}
	if point, _ := points[0].(map[string]any); point["wait_ms"] != 41000.0 || point["backpressure_level"] != 4.0 {
		t.Errorf("a point says %v", point)
	}
	if out := p.run(cli.ExitNothing, "load nobody"); !strings.Contains(out.stderr, "headgate queue list tells which there are") {
		t.Errorf("%s", out.stderr)
	}
	if out := p.run(cli.ExitNothing, "load --downstream sms"); !strings.Contains(out.stderr, "no worker has told of downstream sms: headgate load tells which there are") {
		t.Errorf("%s", out.stderr)
	}
	if out := p.run(cli.ExitUsage, "load mail --downstream smtp"); !strings.Contains(out.stderr, "not of both") {
		t.Errorf("%s", out.stderr)
	}
	if out := p.run(cli.ExitUsage, "load --history 2h"); !strings.Contains(out.stderr, "--history 2h0m0s: allowed is 10s to 1h") {
		t.Errorf("%s", out.stderr)
	}
}

func TestStatsCommand(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a", "b", "c")
	p.kill(1)
	if out := p.run(cli.ExitOK, "stats").stdout; !strings.Contains(out, "jobs that entered") || !strings.Contains(out, "of which 0 tell") {
		t.Errorf("%s", out)
	}
	p.busy(0)
	must(t, p.store.PutPolicy(t.Context(), store.PolicyUpdate{Expected: 1, Version: 2, Text: []byte(`{"version":2}`), Window: time.Minute, Load: time.Second}))
	now, err := p.store.Time(t.Context())
	must(t, err)
	_, err = p.store.Count(t.Context(), []store.ScopeCount{{Scope: admission.Global, Always: true, Allowed: 5, Refused: 2}})
	must(t, err)
	v := p.object(cli.ExitOK, "stats")
	for block, want := range map[string]map[string]any{
		"daemon_info":         {"workers_telling": 1.0, "schedulers": 1.0, "partitions": 1.0, "policy_version": 2.0},
		"resource_status":     {"cpu_utilization": .5, "memory_utilization": .25, "queue_depth": 2.0},
		"performance_metrics": {"total_requests": 3.0, "successful_requests": 0.0, "failed_requests": 1.0, "error_rate": .25, "avg_response_time_ms": 1000.0, "requests_per_second": .067},
		"security_summary":    {"requests_rejected": 2.0},
	} {
		got, _ := v[block].(map[string]any)
		for name, figure := range want {
			if got[name] != figure {
				t.Errorf("%s of %s is %v, want %v, at %v", name, block, got[name], figure, now)
			}
		}
	}
	checkKeys(t, "performance", v["performance_metrics"], strings.Fields("avg_response_time_ms error_rate failed_requests p95_response_time_ms p99_response_time_ms requests_per_second retries successful_requests total_requests"))
}

// TestLoadIsWatched until it is interrupted, and that is no failure.
func TestLoadIsWatched(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a")
	ctx, stop := context.WithCancel(t.Context())
	seen := 0
	out := paper(func(text string) {
		if strings.Contains(text, "mail") {
			seen++
			stop()
		}
	})
	if code := execute(ctx, append([]string{"load", "--watch"}, p.where...), strings.NewReader(""), out, out); code != cli.ExitOK || seen != 1 {
		t.Errorf("exit code %d after %d pictures", code, seen)
	}
}
