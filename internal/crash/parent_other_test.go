//go:build !linux

package crash_test

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
