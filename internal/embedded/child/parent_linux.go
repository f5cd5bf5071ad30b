package child

import "syscall"

// dieWithParent asks the kernel to kill the child when the thread that forks it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
