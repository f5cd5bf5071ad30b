//go:build unix

package redistest

import (
	"os"
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

func (s *Server) signal(tb testing.TB, sig os.Signal) {
	tb.Helper()
	if !s.mayEnd(tb) {
		return
	}
	if err := s.child.Signal(sig); err != nil {
		tb.Errorf("send %s: %v", sig, err)
	}
}
