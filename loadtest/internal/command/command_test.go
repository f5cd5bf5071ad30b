package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/gradient"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/system"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// output is what a command came to.
type output struct {
	code           int
	stdout, stderr string
}

var openGradient = system.OpenLimited("gradient", func(slots int) system.Limiter { return gradient.New(slots) })

func runLoadtest(ctx context.Context, args ...string) output {
	var stdout, stderr bytes.Buffer
	code := Run(ctx, Systems{Headgate: system.OpenHeadgate, Unshed: system.OpenUnshed, Asynq: system.OpenAsynq, Gradient: openGradient}, args, &stdout, &stderr)
	return output{code, stdout.String(), stderr.String()}
}

func decode(t *testing.T, out output) document {
	t.Helper()
	var d document
	if err := json.Unmarshal([]byte(out.stdout), &d); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", out.code, err, out.stdout, out.stderr)
	}
	return d
}

// writeTrace writes a trace of 200 rows, of which every tenth calls a downstream that fails.
func writeTrace(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,negative_prompt_length," +
		"num_images_per_prompt,num_inference_steps,checkpoint_model_version_id\n")
	for i := range 200 {
		status, model := "SUCCEED", i%5
		if i%10 == 9 {
			status, model = "FAILED", 9
		}
		fmt.Fprintf(&text, "%d,DRAW,%s,2,G%d,10,,1,30,M%d\n", 1700000000+i, status, i%7, model)
	}
	text.WriteString("yesterday,DRAW,SUCCEED,2,G1,10,,1,30,M1\n")
	name := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestEveryScenarioKeepsItsPromises runs each for a second and checks what does not depend on the machine's speed.
func TestEveryScenarioKeepsItsPromises(t *testing.T) {
	t.Parallel()
	redistest.Shared(t) // Fails where there is no server.
	trace := writeTrace(t)
	for _, scenario := range load.Scenarios() {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			args, jobs := []string{"-scenario", scenario, "--rate=200", "-duration", "1s", "-tenants=20", "-slots", "20", "-json"}, 200
			if scenario == traceScenario {
				args = append(args, "-trace", trace)
			}
			out := runLoadtest(t.Context(), args...)
			d := decode(t, out)
			if out.code != exitOK || len(d.Scenarios) != 1 || len(d.Scenarios[0].Runs) != 1 {
				t.Fatalf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
			}
			addsUp(t, d.Scenarios[0].Runs[0], jobs)
			asScenario(t, scenario, d.Scenarios[0].Runs[0])
		})
	}
}

// addsUp checks that the sums of a run are those of its parts.
func addsUp(t *testing.T, f *figures.Figures, jobs int) {
	t.Helper()
	if f.Intended != jobs || f.Sent != jobs {
		t.Errorf("%d of %d jobs were sent, rate x duration is %d", f.Sent, f.Intended, jobs)
	}
	if answered := f.Admitted + int(refused(f)) + f.Unavailable + f.Unknown; answered != f.Sent {
		t.Errorf("%d answers to %d jobs", answered, f.Sent)
	}
	if f.Enqueue.Count != int64(f.Sent) || f.Lateness.Count != int64(f.Sent) || f.Completion.Count != int64(f.Completed) {
		t.Errorf("histograms hold %d enqueues and %d completions of %d and %d", f.Enqueue.Count, f.Completion.Count, f.Sent, f.Completed)
	}
	var asked, completed int
	var waits int64
	for _, class := range f.Classes {
		asked, completed, waits = asked+class.Asked, completed+class.Completed, waits+class.Wait.Count
	}
	if asked != f.Sent || completed != f.Completed || waits != f.Wait.Count || f.Wait.Count < int64(f.Completed+f.Dead-f.Expired) {
		t.Errorf("classes add up to %d asked, %d completed, %d waits: %+v", asked, completed, waits, f)
	}
	if ended := f.Completed + f.Dead + f.Held; f.Lost != 0 || ended < f.Admitted || ended > f.Admitted+f.Unknown {
		t.Errorf("%d jobs ended or are held, %d are lost, of %d admitted and %d in doubt", ended, f.Lost, f.Admitted, f.Unknown)
	}
	if len(f.Broken) > 0 || f.Census == nil || !f.Census.Conserved() || f.Census.Accepted < int64(f.Admitted) {
		t.Errorf("broken %v, census %+v", f.Broken, f.Census)
	}
	for _, b := range f.Bounds {
		if b.Exceeded || b.Used <= 0 || b.Used > 1 {
			t.Errorf("bound %+v", b)
		}
	}
	if len(f.Bounds) != 2 || f.Bounds[0].Admitted != f.Wait.Count && f.Scenario != traceScenario {
		t.Errorf("bounds %+v of %d jobs that began", f.Bounds, f.Wait.Count)
	}
}

// asScenario checks what is particular to a scenario.
func asScenario(t *testing.T, scenario string, f *figures.Figures) {
	t.Helper()
	bystanders := false
	switch scenario {
	case "sybil":
		bystanders = true
		if len(f.Caps) != 1 || f.Caps[0].Cap != 10 || f.Caps[0].Most < 1 {
			t.Errorf("caps %+v", f.Caps)
		}
	case "noisy-neighbour":
		bystanders = true
		if f.Heaviest[0].Name != "noisy" || f.Heaviest[0].Asked < 140 {
			t.Errorf("heaviest %+v", f.Heaviest[0])
		}
	case "dead-downstream":
		bystanders = true
	case "overload":
		if f.Goodput == nil || f.Goodput.Times != 2 || f.Goodput.MostUrgent == 0 || f.Classes[0].InTime == 0 {
			t.Errorf("goodput %+v, classes %+v", f.Goodput, f.Classes)
		}
	case "redis-restart":
		if !strings.Contains(f.Store, "appendfsync always") {
			t.Errorf("the store is %s", f.Store)
		}
	case traceScenario:
		bystanders = true
		if f.Dead+f.Held != 20 || f.Dead < 1 {
			t.Errorf("%d dead and %d held of 20 that fail", f.Dead, f.Held)
		}
	}
	if bystanders != (f.Bystanders.Count > 0) || f.Bystanders.Count >= f.Wait.Count {
		t.Errorf("%d of %d waits are bystanders'", f.Bystanders.Count, f.Wait.Count)
	}
}

func TestAComparisonIsPrintedAndReported(t *testing.T) {
	t.Parallel()
	redistest.Shared(t)
	dir := t.TempDir()
	out := runLoadtest(t.Context(), "-rate", "200", "-duration", "500ms", "-compare", "asynq", "-rounds", "1", "-asynq-poll", "50ms", "-report", dir)
	for _, part := range []string{"│ jobs sent", "│ headgate │ asynq │", "every law on: limits at the levels global, tenant, queue and priority", "headgate: every promise held"} {
		if !strings.Contains(out.stdout, part) {
			t.Errorf("no %q in %s", part, out.stdout)
		}
	}
	// Where the store is, where the report is: no bar, since this is no terminal.
	if lines := strings.Count(out.stderr, "\n"); out.code != exitOK || lines != 2 {
		t.Errorf("exit code %d, %d lines: %s", out.code, lines, out.stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || !strings.Contains(string(page), "asynq") {
		t.Errorf("the page: %v", err)
	}
}

func TestARowHasEachFigureOfAllSystems(t *testing.T) {
	t.Parallel()
	redistest.Shared(t)
	out := runLoadtest(t.Context(), "-scenario", "overload", "-overload", "5", "-shape", "ramp", "-rate", "200", "-duration", "1s", "-slots", "5",
		"-compare", "asynq,gradient", "-rounds", "1", "-asynq-poll", "50ms", "-row")
	three := strings.Repeat(` [0-9.]+, [0-9.]+, [0-9.]+ \|`, 6)
	if row := regexp.MustCompile(`^\| 5 times, ramp \|` + three + "\n$"); out.code != exitOK || !row.MatchString(out.stdout) {
		t.Errorf("got %+v, want %s", out, row)
	}
}

func TestTheSearchTellsItsSteps(t *testing.T) {
	t.Parallel()
	redistest.Shared(t)
	// Nothing goes through Redis and a timer of 1 ms in a tenth of one, so no rate holds: 20 and 10 are tried, twice each.
	out := runLoadtest(t.Context(), "-find-limit", "-rate", "20", "-duration", "200ms", "-p99", "100us")
	if steps := strings.Count(out.stdout, "breaks\n"); out.code != exitOK || steps != 4 || !strings.Contains(out.stdout, "no rate from 10 jobs/s on holds") {
		t.Errorf("exit code %d, %d steps: %s%s", out.code, steps, out.stdout, out.stderr)
	}
}

func TestBrokenPromisesFailTheCommand(t *testing.T) {
	t.Parallel()
	results := func(system string, broken ...string) []result {
		return []result{{runs: []*figures.Figures{{System: system, Broken: broken}}}}
	}
	if err := verdict(results(headgateName, "1 admitted jobs are lost")); err == nil {
		t.Error("a broken promise is fine")
	}
	if err := verdict(results(headgateName)); err != nil {
		t.Errorf("all held: %v", err)
	}
	interrupted := results(headgateName)
	interrupted[0].runs[0].Interrupted = true
	if err := verdict(interrupted); !errors.Is(err, errInterrupted) {
		t.Errorf("an interrupted run: %v", err)
	}
	if err := verdict(results(asynqName, "1 admitted jobs are lost")); err != nil {
		t.Errorf("what asynq does is not ours: %v", err)
	}
}

func TestBadFlagsSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-rate 0":                              "invalid -rate 0: allowed is 0.1 to 1e6",
		"--tenants=0 -queues=99":               "invalid -queues 99: allowed is 1 to 63",
		"-scenario storm":                      `invalid -scenario "storm": allowed is all, or some of steady`,
		"-scenario trace":                      `invalid -trace "": allowed is the CSV file`,
		"-trace f -scenario steady":            `invalid -trace "f": allowed is nothing but with the scenario trace`,
		"-compare river":                       `invalid -compare "river": allowed is asynq`,
		"-compare asynq -redis a:1":            "invalid -redis an address: allowed is none with -compare",
		"-compare gradient":                    `invalid -compare "gradient": allowed is nothing but with the scenario overload`,
		"-compare asynq,asynq":                 `invalid -compare "asynq": allowed is asynq, unshed, capped, gradient or failsafe, each once`,
		"-scenario overload -compare failsafe": `invalid -compare "failsafe": allowed is nothing but in go run -C loadtest/peers ./overload`,
		"-row":                                 "invalid -row true: allowed is with the scenario overload",
		"-rounds 0":                            "invalid -rounds 0: allowed is 1 to 99",
		"-p99 1ns":                             "invalid -p99 1ns: allowed is 100us to 1m",
		"-asynq-poll 2m":                       "invalid -asynq-poll 2m0s: allowed is 0s to 1m",
		"-find-limit -report d":                `invalid -report "d": allowed is nothing with -find-limit`,
		"-find-limit -scenario all":            `invalid -scenario "all": allowed is one scenario`,
		"-http -scenario steady":               "invalid -http true: allowed is without -scenario",
		"-http -serve u -redis a:1":            `invalid -serve "u": allowed is without -redis and -headgate`,
		"-serve u":                             `invalid -serve "u": allowed is nothing but with -http`,
		"-headgate f":                          `invalid -headgate "f": allowed is nothing but with -http`,
		"-rate fast":                           `invalid value "fast" for flag -rate: parse error: it is jobs a second, 0.1 to 1e6`,
		"-speed 3":                             "flag provided but not defined: -speed",
		"steady":                               `invalid argument "steady": allowed is nothing but flags`,
	} {
		out := runLoadtest(t.Context(), strings.Fields(args)...)
		if out.code != exitUsage || !strings.Contains(out.stderr, want) || out.stdout != "" {
			t.Errorf("%s: exit code %d, %q, want %q", args, out.code, out.stderr, want)
		}
	}
	if out := runLoadtest(t.Context(), "-h"); out.code != exitOK || !strings.Contains(out.stdout, "-priorities int") {
		t.Errorf("help: exit code %d, %s", out.code, out.stdout)
	}
}

// TestCallsOverHTTP calls a server that answers everything, and one that answers nothing.
func TestCallsOverHTTP(t *testing.T) {
	t.Parallel()
	short := []string{"-http", "-rate", "100", "-duration", "200ms", "-serve"}
	all := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(all.Close)
	out := runLoadtest(t.Context(), append(short, all.URL)...)
	for _, want := range []string{"100 checks/s of 100 tenants", "check ", "5 ms", "10 ms", "50 ms"} {
		if out.code != exitOK || !strings.Contains(out.stdout, want) {
			t.Errorf("%q is not in %+v", want, out)
		}
	}
	var d httpDocument
	out = runLoadtest(t.Context(), append(short, all.URL, "-json")...)
	if err := json.Unmarshal([]byte(out.stdout), &d); err != nil || d.Checks.Count != 20 || d.Reads.Count != 4 || d.Updates.Count != 1 {
		t.Errorf("%v: %+v", err, out)
	}
	none := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(none.Close)
	if out := runLoadtest(t.Context(), append(short, none.URL)...); out.code != exitBroken || !strings.Contains(out.stderr, "is not ready: it answers 404") {
		t.Errorf("%+v", out)
	}
}
