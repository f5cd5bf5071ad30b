//go:build !linux

package child

import "syscall"

// dieWithParent has no means here: a parent that is killed leaves its server behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
