package crash_test

import "syscall"

// dieWithParent asks the kernel to kill a role when the thread that forks it ends. Where there is no such thing a role
// ends all the same when its stdin does.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
