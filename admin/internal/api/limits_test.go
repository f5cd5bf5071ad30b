package api

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestADecisionsPolicyIsReadOnceForAll lets many decisions find at the same time that the policy is stale, again and again.
func TestADecisionsPolicyIsReadOnceForAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{}) // Its own, since commands are counted.
	client := server.Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	reads := func() int64 { return redistest.CommandStats(t, client)["get"].Calls }
	l := &limits{store: s}
	const rounds, callers = 20, 100
	for range rounds {
		done, err := rollout.Put(t.Context(), s, policy.Default(), rollout.Edit{Expected: rollout.AnyVersion})
		if err != nil {
			t.Fatal(err)
		}
		before := reads()
		var all, found sync.WaitGroup
		found.Add(callers)
		for range callers {
			all.Go(func() {
				first := true
				err := l.with(t.Context(), func(c *policy.Compiled) error {
					if first { // All have seen the old one before anybody reads.
						first = false
						found.Done()
						found.Wait()
					}
					if c.Version() != done.To {
						return store.ErrStale
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		// A caller that comes when the reading is over may begin another one before it sees what was read.
		if n := reads() - before; n > 3 {
			t.Fatalf("the policy was read %d times for %d callers", n, callers)
		}
	}
	if err := l.with(t.Context(), func(*policy.Compiled) error { return store.ErrStale }); !errors.Is(err, store.ErrStale) {
		t.Errorf("a policy that is always stale: %v", err)
	}
	if p := ProblemOf(fmt.Errorf("check: %w", store.ErrStale)); p.Status() != 503 || p.RetryAfter == 0 {
		t.Errorf("%+v", p)
	}
	if p := ProblemOf(fmt.Errorf("cancel acme/a: %w", store.ErrUnplaced)); p.Status() != 409 || !strings.Contains(p.Error(), "HeadgateJobsLost") {
		t.Errorf("%+v", p)
	}
}
