package firstprocess

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const asChild = "FIRSTPROCESS_TEST_SCRIPT"

// TestMain is also what the first process of a namespace runs: a shell with the script of a test.
func TestMain(m *testing.M) {
	script, ok := os.LookupEnv(asChild)
	if !ok {
		os.Exit(m.Run())
	}
	Run()
	if err := syscall.Exec("/bin/sh", []string{"sh", "-c", script}, os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

// start runs a script as the child of the first process of a namespace of its own.
func start(t *testing.T, script string) (context.Context, *exec.Cmd) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	first := exec.CommandContext(ctx, os.Args[0])
	first.Env = append(os.Environ(), asChild+"="+script)
	first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := first.Start(); err != nil {
		t.Skipf("no namespaces for processes here: %v", err)
	}
	return ctx, first
}

// children returns the states of a process's children, by one letter each.
func children(t *testing.T, pid int) string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var states strings.Builder
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // It has ended meanwhile.
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			states.WriteString(fields[0])
		}
	}
	return states.String()
}

// TestOrphansAreReaped: a shell leaves ten of them behind, and waits for its own end.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	done := filepath.Join(t.TempDir(), "done")
	ctx, first := start(t, `for i in 1 2 3 4 5 6 7 8 9 10; do (setsid true & exit 0); done; : > `+done+`; exec sleep 60`)
	for {
		_, err := os.Stat(done)
		seen := children(t, first.Process.Pid)
		if err == nil && len(seen) == 1 && seen != "Z" {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("children in the states %s", seen)
		}
	}
	if err := first.Process.Signal(syscall.SIGTERM); err != nil { // It goes to the child.
		t.Fatal(err)
	}
	if err := first.Wait(); err == nil || first.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("it ended with %v", err)
	}
}

func TestItEndsAsTheChildDoes(t *testing.T) {
	t.Parallel()
	_, first := start(t, "exit 7")
	if err := first.Wait(); err == nil || first.ProcessState.ExitCode() != 7 {
		t.Errorf("it ended with %v", err)
	}
}
