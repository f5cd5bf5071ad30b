package redistest_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redistest"
)

func TestFailover(t *testing.T) {
	t.Parallel()
	f := redistest.StartFailover(t, redistest.Options{})
	options, sentinel, err := redisclient.Parse(f.URL())
	must(t, err)
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = time.Minute, time.Minute, time.Minute, time.Minute
	client := redisclient.New(options, sentinel)
	defer client.Close()
	must(t, client.Set(t.Context(), "key", "kept", 0).Err())
	if n, err := client.Wait(t.Context(), 1, 0).Result(); n != 1 || err != nil {
		t.Fatalf("%d replicas have the key: %v", n, err)
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
	f.KillMaster(t, f.Master)
	f.AwaitPromotion(t, f.Replica)
	if got, err := client.Get(t.Context(), "key").Result(); got != "kept" || err != nil {
		t.Errorf("the new master has %q: %v", got, err)
	}
}
