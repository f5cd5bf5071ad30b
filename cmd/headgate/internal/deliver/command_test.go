//go:build unix

package deliver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

func command(t *testing.T, timeout time.Duration, args ...string) *Command {
	t.Helper()
	c, err := NewCommand(CommandConfig{Args: args, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestExitCodesAreJudged(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"exit 0":                      "<nil>",
		"cat >/dev/null; exit 0":      "<nil>",
		"echo a lot; exit 0":          "<nil>",
		"exit 75":                     "snoozed for 10s",
		"echo bad row >&2; exit 65":   "discarded: exit status 65: bad row",
		"echo no net >&2; exit 1":     "exit status 1: no net",
		"exit 127":                    "exit status 127",
		"kill -9 $$":                  "signal: killed",
		"printf '\\377x' >&2; exit 2": "exit status 2: \uFFFDx",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			c := command(t, patience, "sh", "-c", script)
			if got := fmt.Sprint(c.Handle(t.Context(), testJob(strings.Repeat("x", 300<<10)))); got != want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestTheEndOfStandardErrorIsKept(t *testing.T) {
	t.Parallel()
	c := command(t, patience, "sh", "-c", `i=0; while [ $i -lt 3000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`)
	err := c.Handle(t.Context(), testJob("{}"))
	if err == nil || !strings.HasSuffix(err.Error(), "line 2998\nline 2999") || len(err.Error()) > 1<<10 {
		t.Errorf("got %v", err)
	}
	var said tail
	said.most = 5
	for _, part := range []string{"a", "bc", "def", "g", "", "hijklmn", "o"} {
		_, _ = said.Write([]byte(part))
	}
	if said.text() != "klmno" {
		t.Errorf("got %q", said.text())
	}
}

func TestACommandSeesTheJob(t *testing.T) {
	t.Setenv("HEADGATE_SECRET", "sesame")
	t.Setenv("OF_THE_WORKER", "kept")
	out := filepath.Join(t.TempDir(), "out")
	c := command(t, patience, "sh", "-c", `{ env; cat; } > "$1"`, "sh", out)
	if err := c.Handle(t.Context(), testJob("the payload; $(touch /tmp/never)")); err != nil {
		t.Fatal(err)
	}
	bytes, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	text := string(bytes)
	for _, want := range []string{
		"HEADGATE_ID=w.1\n", "HEADGATE_TENANT=acme\n", "HEADGATE_QUEUE=mail\n", "HEADGATE_TYPE=welcome\n", "HEADGATE_PRIORITY=medium\n",
		"HEADGATE_ATTEMPT=2\n", "HEADGATE_MAX_ATTEMPTS=5\n", "HEADGATE_DOWNSTREAM=smtp\n", "HEADGATE_DEADLINE=2031-05-04T12:00:00Z\n",
		"HEADGATE_HEADER_TRACE=abc\n", "HEADGATE_HEADER_ODD_NAME=50%\n", "OF_THE_WORKER=kept\n", "the payload; $(touch /tmp/never)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "sesame") {
		t.Error("the command can read the secret")
	}
}

// gone waits until a process is no more. A zombie counts as gone: its parent is init here, or nobody.
func gone(pid int) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return true
		}
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(status), ") Z ") {
			return true
		}
	}
	return false
}

// pids reads the process ids that a command has written, once there are n of them.
func pids(t *testing.T, name string, n int) []int {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		text, _ := os.ReadFile(name)
		if fields := strings.Fields(string(text)); len(fields) == n {
			all := make([]int, n)
			for i, field := range fields {
				all[i], _ = strconv.Atoi(field)
			}
			return all
		}
	}
	t.Fatal("the command has not started")
	return nil
}

func TestTheWholeGroupEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"that ends when told":      `sleep 300 & echo $$ $! > "$1"; wait`,
		"that ends well when told": `trap 'exit 0' TERM; sleep 300 & echo $$ $! > "$1"; wait`,
		"that does not listen":     `trap "" TERM; sleep 300 & echo $$ $! > "$1"; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "pids")
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			c := command(t, patience, "sh", "-c", script, "sh", out)
			go func() { done <- c.Handle(ctx, testJob("{}")) }()
			all := pids(t, out, 2)
			cancel(worker.ErrDraining)
			if err := <-done; !errors.Is(err, worker.ErrDraining) {
				t.Errorf("got %v", err)
			}
			for _, pid := range all {
				if !gone(pid) {
					t.Errorf("process %d is still there", pid)
				}
			}
		})
	}
}

func TestACommandThatTakesTooLong(t *testing.T) {
	t.Parallel()
	err := command(t, 200*time.Millisecond, "sleep", "300").Handle(t.Context(), testJob("{}"))
	if !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), "it took too long") {
		t.Errorf("got %v", err)
	}
}

func TestWhatACommandLeavesIsKilled(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "pids")
	c := command(t, patience, "sh", "-c", `sleep 300 & echo $! > "$1"`, "sh", out)
	if err := c.Handle(t.Context(), testJob("{}")); err != nil {
		t.Error(err)
	}
	if pid := pids(t, out, 1)[0]; !gone(pid) {
		t.Errorf("process %d is still there", pid)
	}
}

func TestCommandsThatAreNone(t *testing.T) {
	t.Parallel()
	if _, err := NewCommand(CommandConfig{}); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if _, err := NewCommand(CommandConfig{Args: []string{"/nowhere/job"}}); err == nil || !strings.Contains(err.Error(), "find command") {
		t.Errorf("got %v", err)
	}
	name := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(name, []byte("#!/nowhere/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	quiet(t, command(t, patience, name).Handle(t.Context(), testJob("{}")), "start command: ")
}
