//go:build !linux

package laws_test

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
