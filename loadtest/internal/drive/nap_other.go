//go:build !linux

package drive

import "time"

// nap sleeps.
func nap(d time.Duration) { <-time.After(d) }
