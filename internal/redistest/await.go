package redistest

import (
	"testing"
	"time"
)

const (
	// awaitPatience is how long Await waits: a busy machine is slow.
	awaitPatience = time.Minute
	// asideOfLook is how many times as long as a look takes Await pauses after it, between minAside and maxAside: what lasts for longer is seen.
	asideOfLook = 4
	minAside    = 2 * time.Millisecond
	maxAside    = 50 * time.Millisecond
)

// Await looks until something is so, for a minute, after which the test fails. Looks of up to 10 ms take a fifth of the time at most: what it waits for needs the
// machine, too, and so do the tests beside it.
func Await(tb testing.TB, what string, so func() bool) {
	tb.Helper()
	for end := time.Now().Add(awaitPatience); ; {
		began := time.Now()
		if so() {
			return
		}
		now := time.Now()
		if now.After(end) {
			tb.Fatalf("waited in vain for %s", what)
		}
		<-time.After(min(maxAside, max(minAside, asideOfLook*now.Sub(began))))
	}
}
