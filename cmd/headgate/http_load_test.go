package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/scheduler"
)

// distant is a worker that knows HTTP alone.
type distant struct {
	t             *testing.T
	address, key  string
	worker, queue string
}

// newDistant begins a session for a queue at a server.
func newDistant(t *testing.T, address, key, queue string, slots int) *distant {
	t.Helper()
	d := &distant{t: t, address: address, key: key, queue: queue}
	begun := d.want(http.StatusCreated, "workers", fmt.Sprintf(`{"queues":[{"queue":%q}],"slots":%d,"lease":"1m"}`, queue, slots))
	d.worker, _ = begun["worker"].(string)
	return d
}

// want makes a call that has to be answered so.
func (d *distant) want(status int, path, body string) map[string]any {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.address+"/api/v1/"+path, strings.NewReader(body))
	must(d.t, err)
	r.Header.Set("Authorization", "Bearer "+d.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	must(d.t, err)
	text, err := io.ReadAll(response.Body)
	must(d.t, errors.Join(err, response.Body.Close()))
	if response.StatusCode != status {
		d.t.Fatalf("%s %s: %d, want %d\n%s", path, body, response.StatusCode, status, text)
	}
	return decode(d.t, string(text))
}

// of is what a call about the session is told.
func (d *distant) of(what, body string) map[string]any {
	d.t.Helper()
	return d.want(http.StatusOK, "workers/"+d.worker+"/"+what, body)
}

// take takes n jobs.
func (d *distant) take(n int) (jobs []map[string]any) {
	d.t.Helper()
	for end := time.Now().Add(patience); len(jobs) < n; {
		got, _ := d.of("leases", fmt.Sprintf(`{"max":%d,"wait":"1s"}`, n-len(jobs)))["jobs"].([]any)
		for _, one := range got {
			job, _ := one.(map[string]any)
			jobs = append(jobs, job)
		}
		if time.Now().After(end) {
			d.t.Fatalf("it was handed %d jobs, want %d", len(jobs), n)
		}
	}
	return jobs
}

// end ends a job; more is what is said beside its names.
func (d *distant) end(what string, job map[string]any, more string) {
	d.t.Helper()
	d.of(what, fmt.Sprintf(`{"tenant":%q,"id":%q,"token":%q%s}`, job["tenant"], job["id"], job["token"], more))
}

// beats renews the lease until something is so.
func (d *distant) beats(body, what string, so func() bool) {
	d.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !so(); <-tick.C {
		d.of("extend", body)
		if time.Now().After(end) {
			d.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// distantPlant is a plant by a policy, with a server and a scheduler, and a key for workers.
func distantPlant(t *testing.T, rules policy.Policy) (p *plant, address, key string) {
	t.Helper()
	p = newPlant(t)
	p.putPolicy(rules)
	follows, err := producer.New(p.store, producer.Config{Timeout: 20 * time.Second})
	must(t, err)
	p.producer = follows
	key, line := makeKey(t, "--name", "w", "--role", "worker")
	file := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(file, []byte(line+"\n"), 0o600))
	address, stop := startServe(t, &lockedBuffer{}, append([]string{"--keys-file", file}, p.where...)...)
	t.Cleanup(stop)
	return p, address, key
}

func (p *plant) putPolicy(rules policy.Policy) {
	p.t.Helper()
	_, err := rollout.Put(p.t.Context(), p.store, rules, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(p.t, err)
}

// schedule runs a scheduler until the test ends.
func (p *plant) schedule() {
	p.t.Helper()
	s, err := scheduler.New(p.store, scheduler.Config{})
	must(p.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(p.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	p.t.Cleanup(func() {
		stop()
		running.Wait()
	})
}

// calls enqueues jobs of mail that call smtp.
func (p *plant) calls(ids ...string) {
	p.t.Helper()
	for _, id := range ids {
		j := admission.NewJob("acme", "mail", "welcome", []byte("hello"))
		j.ID, j.Downstream = id, "smtp"
		_, err := p.producer.Enqueue(p.t.Context(), j)
		must(p.t, err)
	}
}

// TestAServerTellsHowBusyWorkersOverHTTPAre as workers in Go tell of themselves: how their jobs ran and waited, what they have in hand, by queue and by
// downstream, and what they say of their process. Triggers go by it. Without a load in the policy nothing is told.
func TestAServerTellsHowBusyWorkersOverHTTPAre(t *testing.T) {
	t.Parallel()
	beyond := func(metric, of string, bound float64) policy.Trigger {
		return policy.Trigger{Metric: metric, MeasuredOf: of, When: policy.TriggerBound{Above: new(bound), For: time.Second}, Do: policy.PauseJobs, Of: "queue " + strings.ReplaceAll(metric, "_", "-")}
	}
	rules := policy.Policy{Load: &policy.LoadRules{Every: time.Second}, Triggers: map[string]policy.Trigger{
		"slow": beyond(policy.MetricRunP95, "queue mail", 20), "ill": beyond(policy.MetricErrors, "downstream smtp", .2), "hot": beyond(policy.MetricCPU, "queue mail", .3),
	}}
	p, address, key := distantPlant(t, rules)
	p.schedule()
	d := newDistant(t, address, key, "mail", 8)
	p.calls("a", "b", "c", "d", "e", "f")
	asked := time.Now()
	if told := d.of("extend", ""); told["load_ms"] != 1000.0 {
		t.Errorf("extend says %v", told)
	}
	d.beats(`{"cpu":40,"memory":12.5}`, "it to tell at all", func() bool {
		v := p.object(cli.ExitOK, "load mail")
		return v["cpu_utilization"] == .4 && v["memory_utilization"] == .125 && v["concurrent_requests"] == 0.0
	})
	waited, took := time.Since(asked), time.Now()
	jobs := d.take(6)
	d.end("complete", jobs[0], "")
	d.end("fail", jobs[1], `,"error":"busy","delay":"1h"`)
	d.end("release", jobs[2], `,"delay":"1h"`)
	most := time.Since(took)
	v := map[string]any{}
	d.beats(`{"cpu":40}`, "these to be told", func() bool {
		v = p.object(cli.ExitOK, "load mail")
		return v["error_rate"] != nil && v["concurrent_requests"] == 3.0
	})
	if v["error_rate"] != .5 || v["cpu_utilization"] != .4 || v["memory_utilization"] != nil {
		t.Errorf("of mail it tells %v", v)
	}
	if ran, _ := v["avg_response_time_ms"].(float64); ran <= 0 || ran > float64(most)/1e6 {
		t.Errorf("runs took %v ms, %v since they were handed out", ran, most)
	}
	if wait, _ := v["p95_wait_time_ms"].(float64); wait < .9*float64(waited)/1e6 {
		t.Errorf("jobs waited %v ms, that they were handed out later was %v", wait, waited)
	}
	d.end("complete", jobs[3], `,"ran":"30s"`)
	d.end("fail", jobs[4], `,"ran":"25s","discard":true`)
	d.beats(`{"cpu":40}`, "all triggers to act", func() bool {
		all, err := p.store.Triggers(t.Context())
		must(t, err)
		return len(all) == 3
	})
	if v = p.object(cli.ExitOK, "load --downstream smtp"); v["error_rate"] != .5 || v["concurrent_requests"] != 1.0 || v["avg_response_time_ms"].(float64) < 13_000 {
		t.Errorf("of smtp it tells %v", v)
	}
	p.putPolicy(policy.Policy{})
	if told := d.of("extend", `{"cpu":40}`); told["load_ms"] != nil {
		t.Errorf("while nobody asks extend says %v", told)
	}
	if v = p.object(cli.ExitOK, "load mail"); v["concurrent_requests"] != nil || v["error_rate"] != nil {
		t.Errorf("while nobody asks it tells %v", v)
	}
}

// TestWhatAClientSaysOfItsProcessIsInPercent: what is none is refused, and the answer names the member, what it was and how much is allowed.
func TestWhatAClientSaysOfItsProcessIsInPercent(t *testing.T) {
	t.Parallel()
	_, address, key := distantPlant(t, policy.Policy{Load: &policy.LoadRules{}})
	d := newDistant(t, address, key, "mail", 1)
	for body, words := range map[string][]string{
		`{"cpu":101}`:      {"/cpu", "101", "100"},
		`{"cpu":-1}`:       {"/cpu", "-1", "0"},
		`{"memory":100.5}`: {"/memory", "100.5", "100"},
		`{"memory":"50%"}`: {"/memory", "string", "number"},
	} {
		for _, call := range []string{"extend", "leases"} {
			text := fmt.Sprint(d.want(http.StatusBadRequest, "workers/"+d.worker+"/"+call, body))
			for _, word := range words {
				if !strings.Contains(text, word) {
					t.Errorf("%s %s: no %q in %s", call, body, word, text)
				}
			}
		}
	}
	d.of("extend", `{"cpu":0,"memory":100}`)
	d.of("leases", `{"cpu":100,"memory":0}`)
}

// busyWorkers are programs of each language that work at nothing, and say how busy they are three times a second if they are asked.
var busyWorkers = map[string]string{
	"python": `
from headgate import Client, Worker
Worker(Client(), {"mail": 1}, lease=1).run()
`,
	"typescript": `
import { Client, Worker } from "headgate";
await new Worker(new Client(), { queues: { mail: 1 }, handlers: {}, lease: 1 }).run();
`,
}

// TestClientsSayHowBusyTheirProcessIs while the policy asks them.
func TestClientsSayHowBusyTheirProcessIs(t *testing.T) {
	t.Parallel()
	for _, l := range []language{python, script} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			p, address, key := distantPlant(t, policy.Policy{Load: &policy.LoadRules{Every: time.Second}})
			p.enqueue("a")
			dir, _ := l.programs(t)
			_, said := l.run(t, dir, busyWorkers[l.name], address, key)
			v := map[string]any{}
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for end := time.Now().Add(patience); v["cpu_utilization"] == nil || v["memory_utilization"] == nil; <-tick.C {
				if v = p.object(cli.ExitOK, "load mail"); time.Now().After(end) {
					t.Fatalf("it tells %v\n%s", v, said.String())
				}
			}
			for _, name := range []string{"cpu_utilization", "memory_utilization"} {
				if used, _ := v[name].(float64); used < 0 || used > 1 || name == "memory_utilization" && used == 0 {
					t.Errorf("%s is %v", name, v[name])
				}
			}
		})
	}
}
