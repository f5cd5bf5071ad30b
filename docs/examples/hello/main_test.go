package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestHelloSaysWelcome builds the program of the README with no change but the address of a Redis, runs it, and ends it as Ctrl-C does.
func TestHelloSaysWelcome(t *testing.T) {
	t.Parallel()
	program := exec.CommandContext(t.Context(), build(t, redistest.Start(t, redistest.Options{}).URL()))
	var complaints bytes.Buffer
	program.Stderr = &complaints
	out, err := program.StdoutPipe()
	check(t, err)
	check(t, program.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "welcome ada@example.com" {
		t.Errorf("it says %q: %s", lines.Text(), &complaints)
	}
	check(t, program.Process.Signal(os.Interrupt))
	for lines.Scan() {
		t.Errorf("it says more: %q", lines.Text())
	}
	if err := program.Wait(); err != nil {
		t.Errorf("after an interrupt: %v: %s", err, &complaints)
	}
}

// build returns the path of the program, made for a Redis at a URL, with the flags of the test itself: what it is made of is compiled then.
func build(tb testing.TB, url string) string {
	tb.Helper()
	const address = `"redis://localhost:6379"`
	source, err := os.ReadFile("main.go")
	check(tb, err)
	if bytes.Count(source, []byte(address)) != 1 {
		tb.Fatalf("main.go does not name %s once", address)
	}
	original, err := filepath.Abs("main.go")
	check(tb, err)
	dir := tb.TempDir()
	changed, overlay, path := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "hello")
	check(tb, os.WriteFile(changed, bytes.ReplaceAll(source, []byte(address), []byte(strconv.Quote(url))), 0o600))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	check(tb, err)
	check(tb, os.WriteFile(overlay, text, 0o600))
	args := append([]string{"build", "-overlay", overlay, "-o", path}, flags()...)
	if out, err := exec.CommandContext(tb.Context(), "go", append(args, ".")...).CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	return path
}

// flags returns those that the test was built with and that have the compiler make something else.
func flags() []string {
	var all []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if slices.Contains([]string{"-gcflags", "-race", "-trimpath", "-tags"}, setting.Key) {
				all = append(all, setting.Key+"="+setting.Value)
			}
		}
	}
	return all
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
