package deliver

import "syscall"

// ownGroup puts a command into a process group of its own, so that Ctrl-C at the terminal does not reach it before the
// worker has drained, and asks the kernel to kill it when the thread that started it ends.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
