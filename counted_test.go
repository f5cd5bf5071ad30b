package headgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestAProgramThatEndsIsCounted: one that enqueues a job, asks a limiter and closes both, with no other call, within its first second.
func TestAProgramThatEndsIsCounted(t *testing.T) {
	t.Parallel()
	ctx, prefix := t.Context(), redistest.Prefix(t)
	s, err := redisstore.Open(ctx, redistest.Shared(t).Client(t), redisstore.Config{Prefix: prefix})
	check(t, err)
	hg, err := headgate.Open(ctx, redistest.Shared(t).URL(), headgate.Config{Prefix: prefix})
	check(t, err)
	_, err = hg.Enqueue(ctx, headgate.Job{Tenant: "ann", Queue: "mail", Args: welcome{}, Deadline: time.Now().Add(time.Hour)})
	check(t, err)
	for _, config := range []headgate.LimiterConfig{{Timeout: 5 * time.Second}, {Timeout: 5 * time.Second, Uncounted: true}} {
		limiter, err := hg.Limiter(config)
		check(t, err)
		_, err = limiter.Check(ctx, headgate.Request{Tenant: "bob", Queue: "mail", Cost: 7})
		check(t, err)
		_, err = limiter.Reserve(ctx, headgate.Request{Tenant: "cid", Queue: "mail", Cost: 3})
		check(t, err)
		check(t, limiter.Close(context.WithoutCancel(ctx)))
	}
	check(t, hg.Close())
	for scope, want := range map[admission.Scope]store.Minute{
		"ann:mail": {Allowed: 1, Tokens: 1}, "bob:mail": {Allowed: 1, Tokens: 7}, "cid:mail": {Allowed: 1, Tokens: 3},
	} {
		minutes, err := s.Minutes(ctx, scope)
		check(t, err)
		var got store.Minute
		for _, m := range minutes {
			got.Allowed, got.Refused, got.Tokens = got.Allowed+m.Allowed, got.Refused+m.Refused, got.Tokens+m.Tokens
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", scope, got, want)
		}
	}
}
