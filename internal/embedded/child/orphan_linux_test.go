package child_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentVariable makes TestParent a parent that waits to be killed.
const parentVariable = "HEADGATE_TEST_PARENT"

// TestParent is the program that TestOrphan runs and kills; by itself it does nothing.
func TestParent(t *testing.T) {
	if os.Getenv(parentVariable) == "" {
		t.Skip("is run by TestOrphan")
	}
	server := start(t)
	fmt.Fprintf(os.Stdout, "pid=%d\n", server.PID())
	// Churn threads, so that a death signal bound to a passing thread would be seen.
	for range 64 {
		go func() {
			runtime.LockOSThread() // Never unlocked: the thread ends with the goroutine.
		}()
	}
	select {}
}

func TestOrphan(t *testing.T) {
	t.Parallel()
	t.Run("a server outlives its parent's threads and dies when the parent is killed", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("runs a redis-server")
		}
		parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestParent$", "-test.v")
		parent.Env = append(os.Environ(), parentVariable+"=1", "TMPDIR="+t.TempDir()) // It cannot tidy up itself.
		output, err := parent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		pid := 0
		for lines := bufio.NewScanner(output); pid == 0 && lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "pid="); ok {
				if pid, err = strconv.Atoi(text); err != nil {
					t.Fatal(err)
				}
			}
		}
		if pid == 0 {
			t.Fatal("the parent printed no pid")
		}
		if gone(t, pid, 300*time.Millisecond) {
			t.Fatal("the server died before its parent")
		}
		if err := parent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = parent.Wait() // It was killed.
		if !gone(t, pid, 10*time.Second) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the server outlived its parent")
		}
	})
}

// gone waits up to limit for the process to be no more. A zombie counts as gone.
func gone(t *testing.T, pid int, limit time.Duration) bool {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(limit); time.Now().Before(end); <-poll.C {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return true
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(status), ") Z ") {
			return true
		}
	}
	return false
}
