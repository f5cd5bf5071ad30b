package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const rounds = `BenchmarkOverload/headgate-2  1  1.5 of-capacity-beside-idle
goos: linux
BenchmarkDrain/headgate-2 1 40000 jobs/s
BenchmarkDrain/asynq-2 1 10000 jobs/s
BenchmarkEnqueueToHandler/rate=200/headgate-2 1 0.3 p50-ms 9 p99-ms
ok  	somewhere	1.0s
BenchmarkDrain/headgate-2 1 60000 jobs/s
BenchmarkDrain/asynq-2 1 12000 jobs/s
BenchmarkSuccess/serial/headgate-clock-2 1000000 30.5 ns/op 0 B/op 0 allocs/op
BenchmarkSuccess/serial/failsafe-time-2 1000000 61 ns/op 0 B/op 0 allocs/op
`

func runOn(t *testing.T, text string, args ...string) (string, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rounds.txt")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := run(append(args, name), &out, &out)
	return out.String(), err
}

func TestTargetsAreJudgedByMediansOfRounds(t *testing.T) {
	t.Parallel()
	text, err := runOn(t, rounds)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 50000 (40000-60000) | 11000 (10000-12000) | 4.5 (4-5) | ≥ 4.5 | reached |",
		"| the same, p99 ms | 9 | - | - | ≤ 2 | **missed** |",
		"| 30.5 | 61 | 0.5 | ≤ 1.2 | reached |",
		"| the same, allocations | 0 | - | - | ≤ 0 | reached |",
		"| - | - | - | ≥ 0.999 | not measured |",
		"beside as many callers that ask nobody | 1.5 | - | - |  |  |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	text, err = runOn(t, rounds, "-json")
	var rows []row
	if err == nil {
		err = json.Unmarshal([]byte(text), &rows)
	}
	if err != nil || len(rows) != len(targets) {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// TestAMissIsSeen: what misses a bound by less than is printed is printed with more.
func TestAMissIsSeen(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]string{"17966": "| 1.797 | ≥ 1.8 | **missed** |", "17999.9": "| 1.79999 | ≥ 1.8 | **missed** |", "18000": "| 1.8 | ≥ 1.8 | reached |", "18040": "| 1.8 | ≥ 1.8 | reached |"} {
		text, err := runOn(t, "BenchmarkCheck/callers=64/headgate-2 1 "+of+" checks/s\nBenchmarkCheck/callers=64/redis_rate-2 1 10000 checks/s\n")
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, want %q in\n%s", of, err, want, text)
		}
	}
}

func TestLimitsAreATableOfTheirOwn(t *testing.T) {
	t.Parallel()
	const measured = "BenchmarkLimits/speed/sliding-window/fiber-2 1 7000 checks/s 39 redis-us/check\n" +
		"BenchmarkLimits/exactness/sliding-window/fiber-2 1 176 most-of-100 0.55 of-possible 2 failed\n"
	for _, args := range [][]string{nil, {"-limits"}} {
		text, err := runOn(t, measured+measured, args...)
		if want := "| sliding window, fiber | 7000 | 39 | 176 | 100 | 0.55 | 2 |\n"; err != nil || !strings.Contains(text, want) || strings.Contains(text, "redis_rate | -") {
			t.Errorf("%v: %v, want %q in\n%s", args, err, want, text)
		}
	}
	if text, err := runOn(t, rounds); err != nil || strings.Contains(text, "algorithm") {
		t.Errorf("nothing was measured: %v\n%s", err, text)
	}
}

func TestNothingMeasuredIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := runOn(t, "goos: linux\n"); err == nil || !strings.Contains(err.Error(), "no result of a benchmark") {
		t.Errorf("got %v", err)
	}
}
