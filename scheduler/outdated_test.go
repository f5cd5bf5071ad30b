package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store/redisstore"
)

// TestASchedulerOfAnotherLayoutEnds lets what a migration leaves appear under a scheduler that it has not seen. While it is under way it goes on.
func TestASchedulerOfAnotherLayoutEnds(t *testing.T) {
	t.Parallel()
	for layout, want := range map[string]error{"5": admission.ErrPartitions, ">redis://there:6379": admission.ErrMoved} {
		for _, partitions := range []int{1, 2} {
			t.Run(fmt.Sprintf("of %d, now %s", partitions, layout), func(t *testing.T) {
				t.Parallel()
				client := redistest.Shared(t).Client(t)
				s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions})
				if err != nil {
					t.Fatal(err)
				}
				timers, err := scheduler.New(s, scheduler.Config{TimerLease: 300 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("it did not end in a minute"))
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- timers.Run(ctx) }()
				layOut := func(layout string) {
					for _, part := range s.Partitions() {
						if err := client.HSet(ctx, redisstore.KeysOf(part).State(), "partitions", layout).Err(); err != nil {
							t.Fatal(err)
						}
					}
				}
				layOut("1>5")
				for range 3 {
					if err := timers.Promote(ctx); !errors.Is(err, admission.ErrMigrating) {
						t.Errorf("while it is migrated: %v", err)
					}
				}
				layOut(layout)
				if err := <-ended; !errors.Is(err, want) {
					t.Errorf("it ended with %v", err)
				}
			})
		}
	}
}
