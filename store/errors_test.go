package store

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// TestTheEndOfACallerIsTold whichever of two timers that are set to it was the quicker: the connection's error is not the caller's.
func TestTheEndOfACallerIsTold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(5*time.Millisecond))
	defer cancel()
	end, _ := ctx.Deadline()
	for time.Now().Before(end) { // Without a look at ctx: its timer may not have fired.
	}
	if err := EndOf(ctx, os.ErrDeadlineExceeded); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("of a connection whose time was over with the caller's: %v", err)
	}
	if err := EndOf(t.Context(), os.ErrDeadlineExceeded); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a caller who has time: %v", err)
	}
}
