package producer_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store/redisstore"
)

func TestBadInputIsOneClearError(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, store, producer.Config{})
	for _, c := range []struct {
		name   string
		change func(*admission.Job)
		kind   error
		text   string
	}{
		{"empty tenant", func(j *admission.Job) { j.Tenant = "" }, admission.ErrInvalid, `invalid tenant "": allowed is 1-128 bytes of [A-Za-z0-9._@/-]`},
		{"tenant global", func(j *admission.Job) { j.Tenant = "global" }, admission.ErrInvalid, `invalid tenant "global": allowed is any name but "global", which is the outermost scope`},
		{"payload of 2 MiB", func(j *admission.Job) { j.Payload = make([]byte, 2<<20) }, admission.ErrInvalid, `invalid payload 2097152 bytes: allowed is 0 to 1048576 bytes`},
		{"unknown class", func(j *admission.Job) { j.Priority = "urgent" }, admission.ErrInvalid, `invalid priority "urgent": allowed is a class of queue mail: high, medium, low, or 0 to 10`},
		{"number above the classes", func(j *admission.Job) { j.Priority = "11" }, admission.ErrInvalid, `invalid priority "11": allowed is a class of queue mail: high, medium, low, or 0 to 10`},
		{"zero cost", func(j *admission.Job) { j.Cost = 0 }, admission.ErrInvalid, `invalid cost 0: allowed is 1 to 1000000 tokens`},
		{"negative cost", func(j *admission.Job) { j.Cost = -5 }, admission.ErrInvalid, `invalid cost -5: allowed is 1 to 1000000 tokens`},
		{"queue with a separator", func(j *admission.Job) { j.Queue = "a:b" }, admission.ErrInvalid, `invalid queue "a:b": allowed is 1-128 bytes of [A-Za-z0-9._@/-]`},
		{"deadline of the dark ages", func(j *admission.Job) { j.Deadline = time.Unix(0, 0) }, admission.ErrInvalid, `invalid deadline 1970-01-01T00:00:00Z: allowed is a time from 2000 to 2090`},
		{"deadline in the past", func(j *admission.Job) { j.Deadline = time.Now().Add(-time.Second) }, admission.ErrDeadlinePassed, `job refused for good: its deadline has passed`},
		{"cost above the burst", func(j *admission.Job) { j.Cost = 51 }, admission.ErrTooCostly, `job refused for good: cost is above the burst of 50 tokens of scope acme`},
		{"two bad fields", func(j *admission.Job) { j.Cost, j.Type = 0, "a b" }, admission.ErrInvalid, "invalid type \"a b\": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]\ninvalid cost 0: allowed is 1 to 1000000 tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := job("acme")
			c.change(&j)
			_, err := p.Enqueue(t.Context(), j)
			if !errors.Is(err, c.kind) || err.Error() != c.text {
				t.Errorf("got %v", err)
			}
			results, batchErr := p.EnqueueBatch(t.Context(), []admission.Job{j})
			if results[0].Err == nil || results[0].Err.Error() != c.text || !errors.Is(batchErr, c.kind) {
				t.Errorf("in a batch: got %v and %v", results[0].Err, batchErr)
			}
		})
	}
	t.Cleanup(func() {
		if c, err := store.Census(t.Context()); err == nil && c.Accepted != 0 {
			t.Errorf("%d jobs entered", c.Accepted)
		}
	})
}

func TestABadConfigNamesEveryField(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	_, err := producer.New(store, producer.Config{MaxPayload: -1, Timeout: time.Hour, DedupWindow: -1, InFlight: 99, MaxWaiting: 63, MaxWaitingBytes: 1 << 40})
	want := "configure producer: invalid MaxPayload -1: allowed is 1 to 67108864 bytes\ninvalid Timeout 1h0m0s: allowed is 1ms to 1m\n" +
		"invalid DedupWindow -1ns: allowed is 0 to 24h\ninvalid InFlight 99: allowed is 1 to 16\n" +
		"invalid MaxWaiting 63: allowed is 64 to 1000000 jobs\ninvalid MaxWaitingBytes 1099511627776: allowed is 1048576 to 1073741824 bytes"
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != want {
		t.Errorf("got %v", err)
	}
	bad := policy.Policy{Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Tokens: -1, Per: time.Microsecond, Burst: -1}}}}
	_, err = producer.New(store, producer.Config{Policy: &bad})
	want = "configure producer: invalid tiers.standard.limit.tokens -1: allowed is 1 to 1000000000 tokens\n" +
		"invalid tiers.standard.limit.burst -1: allowed is 1 to 1000000000 tokens\n" +
		"invalid tiers.standard.limit.per 1µs: allowed is 1ms to 744h0m0s"
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// openTimeout is how long Open lets a Redis take.
const openTimeout = 2 * time.Second

func TestAnUnfitRedisIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("too old", func(t *testing.T) {
		t.Parallel()
		client := redis.NewClient(&redis.Options{Addr: oldRedis(t), MaxRetries: -1, Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() { _ = client.Close() })
		_, err := redisstore.Open(t.Context(), client, redisstore.Config{})
		assertError(t, err, admission.ErrInvalid, "open store: invalid redis version 6.2.14: allowed is 7.0 or newer")
	})
	t.Run("evicting", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{MaxMemoryPolicy: "allkeys-lru"})
		_, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{})
		assertError(t, err, admission.ErrInvalid, "open store: invalid redis maxmemory-policy allkeys-lru: allowed is noeviction: "+
			"an evicted key is a lost job (CONFIG SET maxmemory-policy noeviction)")
	})
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		options := server.Options()
		options.ReadTimeout = time.Second // A longer one than openTimeout would count.
		client := redis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		client.AddHook(endsWithin{t, openTimeout})
		server.Kill(t)
		_, err := redisstore.Open(t.Context(), client, redisstore.Config{})
		if !errors.Is(err, admission.ErrUnavailable) || !strings.Contains(err.Error(), "redis does not answer INFO") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("hanging", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		options := server.Options()
		options.ReadTimeout = -1 // Nothing but the ctx of Open ends a read.
		client := redis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		client.AddHook(endsWithin{t, openTimeout})
		server.Pause(t)
		defer server.Resume(t)
		_, err := redisstore.Open(t.Context(), client, redisstore.Config{})
		if !errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

func assertError(t *testing.T, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) || err.Error() != text {
		t.Errorf("got %v", err)
	}
}

// oldRedis answers every command as a Redis 6.2 would answer INFO: its version is all that is looked at.
func oldRedis(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewScanner(conn)
		for in.Scan() { // *N, then N times a length and a word
			var words int
			_, _ = fmt.Sscanf(in.Text(), "*%d", &words)
			name := ""
			for i := range 2 * words {
				if in.Scan(); i == 1 {
					name = strings.ToLower(in.Text())
				}
			}
			if name != "info" {
				fmt.Fprint(conn, "-ERR unknown command\r\n")
				continue
			}
			info := "# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n"
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(info), info)
		}
	}()
	return listener.Addr().String()
}
