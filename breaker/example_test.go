package breaker_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/breaker"
)

// A downstream fails three times, is left alone for a cooldown, and is back.
func Example() {
	start := time.Now()
	b, err := breaker.NewAt(breaker.Instant(time.Since(start)), breaker.Config{
		FailureThreshold: 3, SuccessThreshold: 1, OpenBase: time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var waited time.Duration
	now := func() breaker.Instant { return breaker.Instant(time.Since(start) + waited) }

	call := func(answer error) {
		c, change, ok := b.TryAcquireAt(now())
		if change.Happened() {
			fmt.Println(change.From, "→", change.To)
		}
		if !ok {
			left, _ := b.NextChangeAt(now())
			fmt.Println("refused, open for a while:", left > 29*time.Second)
			return
		}
		slow := time.AfterFunc(b.Config().SlowCallDuration, func() { c.MarkSlowAt(now()) })
		defer slow.Stop()
		if answer == nil {
			change = c.SuccessAt(now())
		} else {
			change = c.FailureAt(now())
		}
		if change.Happened() {
			fmt.Println(change.From, "→", change.To, "for", change.Cause)
		}
	}
	broken := errors.New("connection refused")
	for range 4 {
		call(broken)
	}
	waited += time.Minute
	call(nil)
	call(nil)
	fmt.Println(b.State())
	// Output:
	// closed → open for failure streak
	// refused, open for a while: true
	// open → half-open
	// half-open → closed for probes passed
	// closed
}
