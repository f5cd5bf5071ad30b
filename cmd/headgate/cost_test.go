package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/store"
)

// What jobs of each type have cost, as it is told; of others nothing is.
var costsTold = map[string]string{"less": "5", "more": "55", "bad": "many", "below": "-3", "dead": "7"}

// TestAnAnswerTellsWhatAJobHasCost by its header Headgate-Cost. One that is no number is told to the log, and the job is done all the same.
func TestAnAnswerTellsWhatAJobHasCost(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(w http.ResponseWriter, jobType string, _ int) {
		if cost, told := costsTold[jobType]; told {
			w.Header().Set("Headgate-Cost", cost)
		}
		if jobType == "dead" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	checkCosts(t, `invalid Headgate-Cost \"many\"`, "--deliver", r.URL, "--allow-private")
}

// TestACommandTellsWhatAJobHasCost on file descriptor 3, also where something that it has left running holds that file.
func TestACommandTellsWhatAJobHasCost(t *testing.T) {
	t.Parallel()
	var cases strings.Builder
	for jobType, cost := range costsTold {
		cases.WriteString(jobType + ") echo '" + cost + "' >&3;; ")
	}
	checkCosts(t, `invalid file descriptor 3 \"many\"`, "--exec", "sh", "-c", "case $HEADGATE_TYPE in "+cases.String()+"esac; setsid sleep 3 & [ $HEADGATE_TYPE != dead ] || exit 65")
}

// checkCosts runs a job of each type by a worker and looks at what is charged.
func checkCosts(t *testing.T, bad string, handler ...string) {
	t.Helper()
	d := newDeployment(t)
	name := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(name, []byte(`{"tenants": {"acme": {"limit": {"tokens": 1, "per": "24h", "burst": 200}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := d.run(t.Context(), nil, "policy", "set", name); out.code != cli.ExitOK {
		t.Fatalf("set the policy: %+v", out)
	}
	for _, jobType := range []string{"less", "more", "bad", "below", "dead", "silent"} {
		d.enqueue(jobType, "--cost", "20")
	}
	stop := d.work(handler...)
	c := d.idle()
	out := stop()
	if c.Left["completed"] != 5 || c.Dead != 1 {
		t.Errorf("got %+v", c)
	}
	q := store.Question{Tenant: "acme", Cost: 1}
	for level := range q.Limits {
		q.Limits[level].Disabled = level != int(admission.LevelTenant)
	}
	q.Limits[admission.LevelTenant] = admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 200}
	_, answers, err := d.store.Check(t.Context(), 1, true, []store.Question{q})
	if err != nil {
		t.Fatal(err)
	}
	if left := answers[0].Left[admission.LevelTenant].Tokens(); left != 200-5-55-20-20-7-20 {
		t.Errorf("%d of 200 tokens are left", left)
	}
	for _, want := range []string{bad, "invalid cost -3: allowed is 0 to 10000000 tokens: its reservation stands"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("%q is not in %s", want, out.stderr)
		}
	}
}
