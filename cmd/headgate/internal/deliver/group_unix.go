//go:build unix

package deliver

import (
	"errors"
	"os"
	"syscall"
)

// terminateGroup asks all processes of a command's group to end.
func terminateGroup(leader *os.Process) error {
	err := syscall.Kill(-leader.Pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// killGroup ends what is left of a command's group. The leader is gone by now; the kernel gives its number to nobody
// while the group has a member, and an empty group's comes up again only after all other numbers.
func killGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
