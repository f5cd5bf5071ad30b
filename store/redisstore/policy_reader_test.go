package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// followed reads a policy through a proxy, which tells when the reader blocks.
func followed(t *testing.T, poll time.Duration) (s *Partition, blocked <-chan struct{}, next func(context.Context) <-chan int64) {
	t.Helper()
	server := redistest.Shared(t)
	proxy, began := redistest.NewProxy(t, server.Addr()), make(chan struct{}, 10_000)
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if c.Name == "XREAD" {
			began <- struct{}{}
		}
		return redistest.Action{}
	})
	prefix := redistest.Prefix(t)
	s, err := openOnly(t.Context(), server.Client(t), Config{Prefix: prefix})
	check(t, err)
	watched, err := openOnly(t.Context(), proxy.Client(t), Config{Prefix: prefix})
	check(t, err)
	reader := watched.NewPolicyReader().(*policies.Reader)
	reader.Poll = poll
	t.Cleanup(func() { _ = reader.Close() })
	return s, began, func(ctx context.Context) <-chan int64 {
		told := make(chan int64, 1)
		go func() {
			version, err := reader.Next(ctx, 0)
			if err != nil {
				t.Error(err)
			}
			told <- version
		}()
		return told
	}
}

func await[E any](t *testing.T, from <-chan E) (got E) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing for a minute")
	}
	return got
}

// TestANewPolicyIsPushed: a reader that polls once an hour hears of a version as it is stored.
func TestANewPolicyIsPushed(t *testing.T) {
	t.Parallel()
	s, blocked, next := followed(t, time.Hour)
	told := next(t.Context())
	await(t, blocked)
	check(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute}))
	if version := await(t, told); version != 1 {
		t.Errorf("told of version %d", version)
	}
}

// TestANewPolicyIsPolledFor: also one without an entry in the audit, as after a failover that has lost it.
func TestANewPolicyIsPolledFor(t *testing.T) {
	t.Parallel()
	s, blocked, next := followed(t, 10*time.Millisecond)
	told := next(t.Context())
	await(t, blocked)
	check(t, redisconn.Client(s.conn).HSet(t.Context(), s.conn.Partition.State(), "pv", 7).Err())
	if version := await(t, told); version != 7 {
		t.Errorf("told of version %d", version)
	}
}

// TestAReaderOfThePolicyEndsWithItsCtx does not wait for the poll.
func TestAReaderOfThePolicyEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	_, blocked, next := followed(t, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	told := next(ctx)
	await(t, blocked)
	cancel()
	if version := await(t, told); version != 0 {
		t.Errorf("told of version %d", version)
	}
}
