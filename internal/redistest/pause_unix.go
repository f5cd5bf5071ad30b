//go:build unix

package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Pause stops the server's process without ending it: connections stay, dials succeed, nothing is answered.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGSTOP)
}

// Resume lets a paused server go on. It then answers what was sent to it meanwhile.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGCONT)
}

// Favour gives the server's threads the best of the usual priorities (nice -20), where the test may, as root: beside other processes it still waits now and then, but has what it needs
// of a processor in the sum, so that several servers are equally fast.
func (s *Server) Favour(tb testing.TB) {
	tb.Helper()
	id := s.Client(tb).InfoMap(tb.Context(), "server").Item("Server", "process_id")
	threads, err := filepath.Glob("/proc/" + id + "/task/*")
	if err != nil || len(threads) == 0 {
		threads = []string{id}
	}
	for _, thread := range threads {
		if said, err := exec.CommandContext(tb.Context(), "renice", "-n", "-20", "-p", filepath.Base(thread)).CombinedOutput(); err != nil {
			tb.Logf("the server has no more of a processor than others: %v %s", err, said)
		}
	}
}

// Prefer gives the server's threads the last processor, on which no other thread of this process runs from then on, before all other processes, where
// the test may, as root on Linux with two processors: what its SLOWLOG says of a call is then what the call took, and not that another process had its processor
// meanwhile. The best of the usual priorities (nice -20) is not enough: beside two busy processes one that only touches memory stood still for up
// to 150 ms with it, for 0.5 ms with this one.
func (s *Server) Prefer(tb testing.TB) {
	tb.Helper()
	last := runtime.NumCPU() - 1
	id := s.Client(tb).InfoMap(tb.Context(), "server").Item("Server", "process_id")
	for _, line := range []string{
		fmt.Sprintf("taskset --all-tasks --cpu-list --pid 0-%d %d", max(0, last-1), os.Getpid()),
		fmt.Sprintf("taskset --all-tasks --cpu-list --pid %d %s", last, id),
		"chrt --all-tasks --fifo --pid 50 " + id,
	} {
		words := strings.Fields(line)
		if said, err := exec.CommandContext(tb.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			tb.Logf("the server shares its processor as all do: %s: %v %s", line, err, said)
		}
	}
}

func (s *Server) signal(tb testing.TB, sig os.Signal) {
	tb.Helper()
	if !s.mayEnd(tb) {
		return
	}
	if err := s.child.Signal(sig); err != nil {
		tb.Errorf("send %s: %v", sig, err)
	}
}
