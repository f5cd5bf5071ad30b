package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
)

// asCommand is set where the test's binary is to be headgate.
const asCommand = "HEADGATE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	redistest.Main(m)
}

// output is what a command came to.
type output struct {
	code           int
	stdout, stderr string
}

func runHeadgate(ctx context.Context, args ...string) output {
	var stdout, stderr bytes.Buffer
	code := execute(ctx, args, os.Stdin, &stdout, &stderr)
	return output{code, stdout.String(), stderr.String()}
}

// writeTrace writes a trace of n good rows and a bad one, and returns its name.
func writeTrace(t *testing.T, n int) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("gmt_create,predict_type,predict_status,exec_time_seconds,customer,prompt_length,negative_prompt_length," +
		"num_images_per_prompt,num_inference_steps,checkpoint_model_version_id\n")
	for i := range n {
		fmt.Fprintf(&text, "%d,DRAW,SUCCEED,2,G%d,10,,1,30,M%d\n", 1700000000+i, i%7, i%3)
	}
	text.WriteString("1700000000,DRAW,PENDING,0,G1,,,,,\n")
	name := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The keys that a report has, and those of its parts.
var (
	summaryKeys = strings.Fields("admitted bad_rows breakers cancelled classes completed conserved dead downstreams dropped duplicates " +
		"estimate_compared estimate_median_error excluded_rows expired failed_attempts healthy interrupted jobs_per_s order_head " +
		"refused rows submitted tenants waiting wall_s")
	classKeys   = strings.Fields("dispatched wait_p50_ms wait_p99_ms wait_steps_p50 wait_steps_p99")
	tenantsKeys = strings.Fields("count jain jain_compared light_wait_p99_ms")
)

// decode reads the one JSON object that standard output must be.
func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || decoder.More() {
		t.Fatalf("standard output is not one JSON object: %v\n%s", err, text)
	}
	return object
}

func checkKeys(t *testing.T, what string, object any, want []string) {
	t.Helper()
	fields, ok := object.(map[string]any)
	if got := slices.Sorted(maps.Keys(fields)); !ok || !slices.Equal(got, want) {
		t.Errorf("%s has the keys %v, want %v", what, got, want)
	}
}

func TestReplayEndsWithOneObject(t *testing.T) {
	t.Parallel()
	out := runHeadgate(t.Context(), "replay", writeTrace(t, 300), "--column-tenant", "customer", "--speed", "1e6", "--concurrency", "3",
		"--seed", "5", "--json", "--redis", redistest.Shared(t).URL())
	if out.code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", out.code, out.stderr)
	}
	s := decode(t, out.stdout)
	checkKeys(t, "the report", s, summaryKeys)
	classes, _ := s["classes"].(map[string]any)
	checkKeys(t, "classes", classes, []string{"high", "low", "medium"})
	checkKeys(t, "class high", classes["high"], classKeys)
	checkKeys(t, "tenants", s["tenants"], tenantsKeys)
	if s["rows"] != 301.0 || s["bad_rows"] != 1.0 || s["completed"] != 300.0 || s["conserved"] != true {
		t.Errorf("got %s", out.stdout)
	}
	if list, ok := s["breakers"].([]any); !ok || len(list) != 0 {
		t.Errorf("breakers %v", s["breakers"])
	}
	if !strings.Contains(out.stderr, "trace.csv:302: bad row: no downstream; no images; no steps") {
		t.Errorf("the bad row is not reported: %s", out.stderr)
	}
}

func TestReplayPrintsTables(t *testing.T) {
	t.Parallel()
	out := runHeadgate(t.Context(), "replay", writeTrace(t, 50), "--column-tenant=customer", "--speed=1e6", "--redis", redistest.Shared(t).URL(),
		"--limit-rows", "40", "--exclude-downstream", "M2")
	if out.code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", out.code, out.stderr)
	}
	for _, want := range []string{"of which 0 are bad and 13 excluded", "conserved", "medium", "M0", "7 tenants."} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("%q is not in\n%s", want, out.stdout)
		}
	}
}

func TestDemoEndsWithTheSameObject(t *testing.T) {
	t.Parallel()
	var list []any
	for length := 3 * time.Second; len(list) == 0; length *= 2 { // In a short story a machine that is busy comes to no six calls of what is dead.
		out := runHeadgate(t.Context(), "demo", "--duration", length.String(), "--json", "--redis", redistest.Shared(t).URL())
		if out.code != cli.ExitOK {
			t.Fatalf("exit code %d: %s", out.code, out.stderr)
		}
		s := decode(t, out.stdout)
		checkKeys(t, "the report", s, summaryKeys)
		list, _ = s["breakers"].([]any)
		if len(list) > 1 || len(list) == 0 && length > 30*time.Second {
			t.Fatalf("breakers %v in a story of %s", s["breakers"], length)
		}
	}
	checkKeys(t, "a breaker", list[0], strings.Fields("downstream held_back opened state"))
}

// paper is progress that somebody reads.
type paper func(line string)

func (p paper) Write(line []byte) (int, error) {
	p(string(line))
	return len(line), nil
}

func TestAnInterruptIsAFailureWithAReport(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	progress := paper(func(line string) {
		stderr.WriteString(line)
		if strings.Contains(line, " rows in") {
			cancel()
		}
	})
	code := execute(ctx, []string{
		"replay", writeTrace(t, 100), "--column-tenant=customer", "--speed=2", "--json", "--redis", redistest.Shared(t).URL(),
	}, os.Stdin, &stdout, progress)
	if s := decode(t, stdout.String()); code != cli.ExitFailure || s["interrupted"] != true || s["conserved"] != true {
		t.Errorf("exit code %d: %s", code, stdout.String())
	}
	if !strings.Contains(stderr.String(), "headgate: interrupted: the report is of what was done until then") {
		t.Errorf("got %s", stderr.String())
	}
}

func TestPoliciesGoInAndOut(t *testing.T) {
	t.Parallel()
	where := []string{"--redis", redistest.Shared(t).URL(), "--prefix", redistest.Prefix(t)}
	run := func(args ...string) output {
		return runHeadgate(t.Context(), append(append([]string{"policy"}, args...), where...)...)
	}
	if out := run("get"); out.code != cli.ExitOK || !strings.Contains(out.stdout, `"version": 0`) {
		t.Errorf("get: %+v", out)
	}
	if out := run("set", "default"); out.code != cli.ExitOK || out.stdout != "version 1 is in force\n" {
		t.Errorf("set default: %+v", out)
	}
	name := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(name, []byte(`{"version": 1, "tenants": {"acme": {"tier": "premium"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run("set", name); out.code != cli.ExitOK || out.stdout != "version 2 is in force\n" {
		t.Errorf("set a file: %+v", out)
	}
	if out := run("set", name); out.code != cli.ExitFailure || !strings.Contains(out.stderr, "version 2 is in force: get that one and change it") {
		t.Errorf("set a stale file: %+v", out)
	}
	if out := run("get"); !strings.Contains(out.stdout, `"acme"`) {
		t.Errorf("get: %+v", out)
	}
}

// TestALogEndsWithItsCommand: what a command leaves in the background writes nothing where its caller reads.
func TestALogEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	to, end := shared(&log)
	for _, line := range []string{"before\n", "after\n"} {
		if n, err := io.WriteString(to, line); n != len(line) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		end()
	}
	if log.String() != "before\n" {
		t.Errorf("written: %q", log.String())
	}
}
