package redistest_test

import (
	"errors"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redistest"
)

func TestFailover(t *testing.T) {
	t.Parallel()
	f := redistest.StartFailover(t, redistest.Options{})
	options, sentinel, err := redisclient.Parse(f.URL())
	must(t, err)
	client := redisclient.New(options, sentinel)
	defer client.Close()
	must(t, client.Set(t.Context(), "key", "kept", 0).Err())
	if n := client.Wait(t.Context(), 1, 0).Val(); n != 1 {
		t.Fatalf("%d replicas have the key", n)
	}
	sentinel.Master = "other"
	stranger := redisclient.New(options, sentinel)
	defer stranger.Close()
	// A Sentinel's nil for a name is not Redis's nil for a key.
	if _, dial := errors.AsType[*net.OpError](stranger.Get(t.Context(), "key").Err()); !dial {
		t.Error("a master that nobody knows did not fail the dial")
	}
	if err := stranger.Get(t.Context(), "key").Err(); errors.Is(err, redis.Nil) {
		t.Errorf("%v reads as no such key", err)
	}
	f.Master.Kill(t)
	f.AwaitPromotion(t, f.Replica)
	if got := client.Get(t.Context(), "key").Val(); got != "kept" {
		t.Errorf("the new master has %q", got)
	}
}
