package load

import (
	"syscall"
	"time"
)

// nap sleeps in the kernel: it wakes some 0.1 ms late, the timers of Go up to a millisecond or more on an idle machine,
// because the runtime waits for them in whole milliseconds.
func nap(d time.Duration) {
	spec := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&spec, nil) // A signal ends it early; the caller looks at the clock.
}
