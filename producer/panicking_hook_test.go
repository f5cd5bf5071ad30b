package producer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// panicking is a hook of a client that panics at each script.
type panicking struct{}

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if redistest.IsScript(command.Name()) {
			panic("too much")
		}
		return next(ctx, command)
	}
}

func (panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAPanicOfAHookStrandsNobody(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	client.AddHook(panicking{})
	var said strings.Builder
	p, err := New(s, Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second, Logger: zerolog.New(&said)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // After one the line goes on.
		if _, err := p.Enqueue(t.Context(), testJob("a")); !errors.Is(err, admission.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "too much") {
			t.Errorf("got %v", err)
		}
	}
	assertIdle(t, p)
	if !strings.Contains(said.String(), "too much") {
		t.Errorf("the log says %s", said.String())
	}
}
