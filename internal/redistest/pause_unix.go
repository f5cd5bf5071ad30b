//go:build unix

package redistest

import (
	"os"
	"strconv"
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

// Prefer gives the server's thread a processor before all other processes, where the test may, as root: what its SLOWLOG says of a call is then
// what the call took, and not that another process had its processor meanwhile.
func (s *Server) Prefer(tb testing.TB) {
	tb.Helper()
	id, err := strconv.Atoi(s.Client(tb).InfoMap(tb.Context(), "server").Item("Server", "process_id"))
	if err == nil {
		err = syscall.Setpriority(syscall.PRIO_PROCESS, id, -20)
	}
	if err != nil {
		tb.Logf("the server shares its processor as all do: %v", err)
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
