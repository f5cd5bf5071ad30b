//go:build !linux

package load

import "time"

// nap sleeps.
func nap(d time.Duration) { <-time.After(d) }
