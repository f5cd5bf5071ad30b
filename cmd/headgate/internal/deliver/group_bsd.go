//go:build unix && !linux

package deliver

import "syscall"

// ownGroup puts a command into a process group of its own, so that Ctrl-C at the terminal does not reach it before the
// worker has drained. A worker that is killed leaves it behind: nothing here asks the kernel for more.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
