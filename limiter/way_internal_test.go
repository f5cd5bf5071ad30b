package limiter

import (
	"testing"

	"github.com/headgate/headgate/breaker"
)

// TestAPressedQueueIsAskedForOncePerLife: however many are answered of tokens on lease, one a second asks Redis how much the queue is pressed.
func TestAPressedQueueIsAskedForOncePerLife(t *testing.T) {
	t.Parallel()
	w := &way{pressed: &pressed{}}
	now := breaker.Instant(1)
	for _, c := range []struct {
		at   breaker.Instant
		asks bool
	}{{now, true}, {now, false}, {now.Add(pressedLife) - 1, false}, {now.Add(pressedLife), true}, {now.Add(pressedLife), false}, {now.Add(10 * pressedLife), true}} {
		if asks := w.asks(c.at); asks != c.asks {
			t.Errorf("at %d: asks %t", c.at, asks)
		}
	}
	if (&way{}).asks(now) {
		t.Error("a queue that is not measured is asked for")
	}
}
