//go:build !unix

package deliver

import (
	"os"
	"syscall"
)

// ownGroup has no means here.
func ownGroup() *syscall.SysProcAttr { return nil }

// terminateGroup ends the command alone: there are no process groups here.
func terminateGroup(leader *os.Process) error { return leader.Kill() }

// killGroup has nothing to do here.
func killGroup(*os.Process) {}
