//go:build unix

package child

import (
	"os"
	"syscall"
)

// resume lets a paused process run again, so that it can take other signals.
func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
