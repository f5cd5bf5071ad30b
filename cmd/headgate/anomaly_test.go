package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func TestAnomalyCommand(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "anomaly list"); out.stdout != "" || !strings.Contains(out.stderr, "no rate like that was found") {
		t.Errorf("%+v", out)
	}
	minute := time.Now().Truncate(time.Minute)
	_, err := p.store.NoteAnomalies(t.Context(), []store.Anomaly{
		{Kind: "surge", Of: "tenant", Name: "acme", Minute: minute, Rate: 120, Usual: 12.5, Deviation: 3.5, Score: 30.71},
		{Kind: "scope_scan", Of: "credential", Name: "ops", Minute: minute, Rate: 61, Usual: 60},
	})
	must(t, err)
	out := p.run(cli.ExitOK, "anomaly list").stdout
	flat := strings.Join(strings.Fields(strings.ReplaceAll(out, "│", " ")), " ")
	surge, scan := strings.Index(flat, "surge tenant acme 120 12.5 30.7"), strings.Index(flat, "scope_scan credential ops 61 60 -")
	if scan < 0 || surge < scan {
		t.Errorf("%s", out)
	}
	view := p.object(cli.ExitOK, "anomaly list --kind surge")
	all, _ := view["anomalies"].([]any)
	if len(all) != 1 {
		t.Fatalf("%v", view)
	}
	one, _ := all[0].(map[string]any)
	checkKeys(t, "an anomaly", one, strings.Fields("at deviation id kind minute name of rate score usual"))
	for line, want := range map[string]string{
		"anomaly list --kind odd": `kind "odd": allowed is surge, silence, refusal_surge, scope_scan, near_limit`, "anomaly list --limit 0": "limit 0: allowed is 1 to 1000",
	} {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s says %s", line, out.stderr)
		}
	}
}

// TestAWorkerTellsOfAnomalies: by --notify, what comes once it follows.
func TestAWorkerTellsOfAnomalies(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	_, err := rollout.Put(t.Context(), d.store, policy.Policy{Anomalies: &policy.AnomalyRules{}}, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	told := make(chan map[string]any, 10)
	o := newObserver(t, func(*http.Request, string, int) int { return http.StatusNoContent })
	o.event = func(event map[string]any) { told <- event }
	stop := d.work(append(o.flags(), "--set", "scheduler.timer_lease=5s", "--exec", "true")...)
	part := d.store.Partitions()[0]
	eventually(t, func() bool {
		place, err := part.EventsFollowed(t.Context(), "on_anomaly")
		must(t, err)
		return place != ""
	})
	_, err = part.NoteAnomalies(t.Context(), []store.Anomaly{{Kind: "surge", Of: "tenant", Name: "acme", Minute: time.Unix(1800000060, 0), Rate: 120, Usual: 12.5, Deviation: 3.5, Score: 30.7}})
	must(t, err)
	event := <-told
	data, _ := event["data"].(map[string]any)
	if event["type"] != "headgate.anomaly.surge" || event["subject"] != "tenant:acme" || data["rate"] != 120.0 || data["minute"] != "2027-01-15T08:01:00Z" {
		t.Errorf("%v", event)
	}
	checkLog(t, stop().stderr)
}

// TestAnomalyTry: of a trace with a steady tenant, and one that sends five times as much for four minutes.
func TestAnomalyTry(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("gmt_create,exec_time_seconds,groupId\n")
	for minute := range 90 {
		n := 20
		if minute >= 70 && minute < 74 {
			n = 100
		}
		for i := range n {
			fmt.Fprintf(&rows, "2024-11-15 %02d:%02d:%02d,1.0,burst\n", 10+minute/60, minute%60, i*60/n)
		}
		fmt.Fprintf(&rows, "2024-11-15 %02d:%02d:59,1.0,steady\n", 10+minute/60, minute%60)
	}
	name := filepath.Join(t.TempDir(), "trace.csv")
	must(t, os.WriteFile(name, []byte(rows.String()), 0o600))
	run := func(args ...string) output {
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), append([]string{"anomaly", "try"}, args...), strings.NewReader(""), &stdout, &stderr)
		return output{code, stdout.String(), stderr.String()}
	}
	if out := run(name); out.code != cli.ExitOK || !strings.Contains(out.stdout, "2210 rows of 2 tenants in 90 minutes; at most 3 names were watched at a time\nalarms: 2 of a surge, 0 of a silence\n") ||
		!strings.Contains(out.stdout, "2024-11-15 11:11:00Z") {
		t.Errorf("%+v", out)
	}
	out := run(name, "--json", "--speed", "1")
	var told struct {
		Alarms map[string]int
		First  []map[string]any
	}
	must(t, json.Unmarshal([]byte(out.stdout), &told))
	if told.Alarms["surge"] != 2 || len(told.First) != 2 || told.First[1]["usual"] != 20.0 && told.First[0]["usual"] != 20.0 {
		t.Errorf("%+v", told)
	}
	for bad, want := range map[string]string{"0.5": "speed 0.5: allowed is 1 to 1e6"} {
		if out := run(name, "--speed", bad); out.code != cli.ExitUsage || !strings.Contains(out.stderr, want) {
			t.Errorf("%+v", out)
		}
	}
	if out := run(filepath.Join(t.TempDir(), "none.csv")); out.code != 1 || !strings.Contains(out.stderr, "read the trace") {
		t.Errorf("%+v", out)
	}
}

// TestQueueShowTellsOfDifferentNames: of jobs that are enqueued by the command line, where the policy has rates watched.
func TestQueueShowTellsOfDifferentNames(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.setPolicy(`{"anomalies": {}}`)
	for _, tenant := range []string{"acme", "bee", "acme"} {
		p.run(cli.ExitOK, "enqueue --tenant "+tenant+" --queue mail --type send")
	}
	distinct, _ := p.object(cli.ExitOK, "queue show mail")["distinct"].(map[string]any)
	this, _ := distinct["this_hour"].(map[string]any)
	last, _ := distinct["last_hour"].(map[string]any)
	jobs, _ := this["jobs"].(float64)
	before, _ := last["jobs"].(float64)
	if jobs+before != 3 || this["tenants"] != 2.0 && last["tenants"] != 2.0 && before == 0 {
		t.Errorf("%v", distinct)
	}
	if out := p.run(cli.ExitOK, "queue show mail").stdout; !strings.Contains(out, "Different tenants: ") {
		t.Errorf("%s", out)
	}
}
