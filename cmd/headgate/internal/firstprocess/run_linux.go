package firstprocess

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Run returns at once in a process that is not the first of its PID namespace. In one that is, it runs the same program with the same
// arguments as a child, hands signals on to it, reaps what else has lost its parent, and ends as the child does. When the first process
// ends, the kernel kills all others.
func Run() {
	if os.Getpid() != 1 {
		return
	}
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "headgate: start as the child of the first process:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the child, 128 and the number of the signal that ended it.
func run() (code int, err error) {
	signals := make(chan os.Signal, 64) // before the child starts, so that none is missed
	signal.Notify(signals)
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	child, err := os.StartProcess(self, os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, err
	}
	for s := range signals {
		switch s {
		case syscall.SIGCHLD:
			if status, ended := reap(child.Pid); ended {
				return status, nil
			}
		case syscall.SIGURG: // The runtime's own.
		default:
			_ = child.Signal(s) // One that has just ended needs it no more.
		}
	}
	return 1, nil
}

// reap waits for all children that have ended. ended says that the one with a pid was among them.
func reap(pid int) (code int, ended bool) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR: // an Errno, bare
		case err != nil || got <= 0:
			return code, ended
		case got == pid && status.Signaled():
			code, ended = 128+int(status.Signal()), true
		case got == pid && status.Exited():
			code, ended = status.ExitStatus(), true
		}
	}
}
