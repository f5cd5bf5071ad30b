package child

import "syscall"

// dieWithParent asks the kernel to kill the child when the thread that forks it ends. A process group of its own
// keeps Ctrl-C at the terminal from ending it before its parent has drained.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
