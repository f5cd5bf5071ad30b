package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestTriggersAreToldTriedAndChanged by the command line: one that acts, and how often it would have in the last hour, of which there is one point here.
func TestTriggersAreToldTriedAndChanged(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	file := filepath.Join(t.TempDir(), "deep.json")
	must(t, os.WriteFile(file, []byte(`{"when":{"metric":"queue_depth","of":"queue mail","above":100,"for":"10s"},"do":"pause","of":"queue mail"}`), 0o600))
	if out := p.run(cli.ExitOK, "trigger list"); out.stdout != "" || !strings.Contains(out.stderr, "the policy has no triggers") {
		t.Errorf("none: %q, %q", out.stdout, out.stderr)
	}
	if out := p.run(cli.ExitUsage, "trigger set deep "+file); !strings.Contains(out.stderr, `none without a load`) {
		t.Errorf("without a load: %s", out.stderr)
	}
	_, err := rollout.Put(t.Context(), p.store, policy.Policy{Load: &policy.LoadRules{}}, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	if out := p.run(cli.ExitOK, "trigger set deep "+file+" --reason night"); !strings.Contains(out.stdout, `deep: {"when":{"metric":"queue_depth"`) {
		t.Errorf("set says %s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "trigger show deep"); !strings.Contains(out.stdout, `"above":100`) {
		t.Errorf("show says %s", out.stdout)
	}
	part := p.store.Partitions()[0]
	_, err = part.Promote(t.Context(), "s1", time.Minute)
	must(t, err)
	now, err := p.store.Time(t.Context())
	must(t, err)
	// The points of the last hour cannot be written afterwards: the last of them says what is there.
	must(t, part.NoteLoad(t.Context(), store.LoadNote{Owner: "s1", Services: map[string]string{"mail": load.Figures{Use: load.Unknown, Depth: 500, Running: -1, ErrorRate: -1, Average: -1, P95: -1, WaitP95: -1, Wait: -1}.Text()}}))
	trial := p.object(cli.ExitOK, "trigger try deep")
	checkKeys(t, "a trial", trial, strings.Fields("active_ms fired from least metric most name of points spans"))
	if trial["points"] != 1.0 || trial["most"] != 500.0 || trial["fired"] != 0.0 {
		t.Errorf("the trial says %v", trial)
	}
	if out := p.run(cli.ExitOK, "trigger try deep"); !strings.Contains(out.stdout, "queue_depth of queue mail was 500 to 500, in 1 points") {
		t.Errorf("try says %s", out.stdout)
	}
	must(t, os.WriteFile(file, []byte(`{"when":{"metric":"wait","of":"queue mail","above":1},"do":"pause","of":"queue mail"}`), 0o600))
	if out := p.run(cli.ExitOK, "trigger try slow "+file); !strings.Contains(out.stdout, "nothing is known of wait of queue mail in the last hour") {
		t.Errorf("of what was not known: %s", out.stdout)
	}
	version, err := p.store.PolicyInForce(t.Context())
	must(t, err)
	must(t, p.store.NoteTrigger(t.Context(), store.TriggerNote{Owner: "s1", Version: version, Name: "deep", Life: time.Minute, Do: "pause", Of: "queue mail", Why: "it is 512"}))
	list := p.run(cli.ExitOK, "trigger list").stdout
	for _, word := range []string{"deep", "queue_depth of queue mail above 100 for 10s", "pause", "it is 512", strconv.Itoa(now.Year())} {
		if !strings.Contains(list, word) {
			t.Errorf("no %q in\n%s", word, list)
		}
	}
	view := p.object(cli.ExitOK, "trigger list")
	all, _ := view["triggers"].([]any)
	one, _ := all[0].(map[string]any)
	checkKeys(t, "a trigger", one, strings.Fields("active do name of own since why"))
	p.run(cli.ExitOK, "trigger unset deep")
	p.run(cli.ExitNothing, "trigger unset deep")
	p.run(cli.ExitNothing, "trigger show deep")
	p.run(cli.ExitNothing, "trigger try deep")
}

// TestAWorkerTellsOfTriggers: by --notify, one that begins and ends, which its scheduler has seen; and the metric shows it meanwhile.
func TestAWorkerTellsOfTriggers(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	document := policy.Policy{Load: &policy.LoadRules{}, Triggers: map[string]policy.Trigger{"calm": {
		Metric: policy.MetricDepth, When: policy.TriggerBound{Below: new(5.0), For: time.Second}, Do: policy.PauseJobs, Of: "queue hook",
	}}}
	_, err := rollout.Put(t.Context(), d.store, document, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	part := d.store.Partitions()[0]
	must(t, part.NoteEventsFollowed(t.Context(), "on_trigger", "0-0"))
	told := make(chan map[string]any, 10)
	o := newObserver(t, func(*http.Request, string, int) int { return http.StatusNoContent })
	o.event = func(event map[string]any) { told <- event }
	server := addressOf(d, "serve", "--address", "127.0.0.1:0", "--insecure-no-auth")
	shows := func(line string) func() bool {
		return func() bool {
			return strings.Contains(call(t, http.MethodGet, server+"/metrics", "", http.StatusOK), "headgate_trigger_active") == (line != "") &&
				strings.Contains(call(t, http.MethodGet, server+"/metrics", "", http.StatusOK), line)
		}
	}
	if !shows("")() {
		t.Error("the metric shows a trigger that does not act yet")
	}
	stop := d.work(append(o.flags(), "--set", "scheduler.timer_lease=5s", "--exec", "true")...)
	event := <-told
	data, _ := event["data"].(map[string]any)
	if event["type"] != "headgate.trigger.active" || event["subject"] != "calm" || data["active"] != true || data["why"] != "queue_depth of queue hook below 5 for 1s, it is 0" {
		t.Errorf("%v", event)
	}
	eventually(t, shows(`headgate_trigger_active{name="calm"} 1`))
	_, err = rollout.Put(t.Context(), d.store, policy.Policy{}, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	if event = <-told; event["type"] != "headgate.trigger.cleared" || event["subject"] != "calm" {
		t.Errorf("%v", event)
	}
	eventually(t, shows(""))
	checkLog(t, stop().stderr)
}
