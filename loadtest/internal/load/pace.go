package load

import (
	"context"
	"sync"
	"time"
)

// longestNap is how long Pace sleeps without looking at its ctx.
const longestNap = 20 * time.Millisecond

// Pace calls send for each arrival in a goroutine of its own when its time has come, and returns when all of them have
// ended. When ctx ends the rest is not sent.
func Pace(ctx context.Context, arrivals []Arrival, start time.Time, send func(number int)) {
	var sending sync.WaitGroup
	defer sending.Wait()
	for i := range arrivals {
		at := start.Add(arrivals[i].At)
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			if ctx.Err() != nil {
				return
			}
			nap(min(wait, longestNap))
		}
		if ctx.Err() != nil {
			return
		}
		sending.Go(func() { send(i) })
	}
}
