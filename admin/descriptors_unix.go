//go:build unix

package admin

import "syscall"

// descriptors returns how many files and connections the process may have open, 0 if nobody knows.
func descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}
