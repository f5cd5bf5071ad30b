package embedded_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
)

// openMiniredis opens a store on a machine without Redis. It changes PATH, so its tests run one after another.
func openMiniredis(t *testing.T) *embedded.Store {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	store, log := open(t, embedded.Config{})
	if store.Kind() != embedded.KindMiniredis {
		t.Fatalf("opened %s", store)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "NOTHING SURVIVES") {
		t.Errorf("logged %q", log)
	}
	return store
}

// patient returns a client that waits for a busy machine.
func patient(t *testing.T, store *embedded.Store) *redis.Client {
	t.Helper()
	options := store.Options()
	options.ReadTimeout = 30 * time.Second
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestMiniredis(t *testing.T) {
	client := patient(t, openMiniredis(t))
	t.Run("tells the real time in microseconds inside a script", func(t *testing.T) {
		const script = `local t = redis.call('TIME') return string.format('%.0f', t[1] * 1000000 + t[2])`
		fractions := map[int64]bool{}
		for range 20 {
			before := time.Now()
			micros, err := client.Eval(t.Context(), script, nil).Int64()
			if err != nil {
				t.Fatal(err)
			}
			if told := time.UnixMicro(micros); told.Before(before.Truncate(time.Microsecond)) || told.After(time.Now()) {
				t.Fatalf("told %s, it is %s", told, before)
			}
			fractions[micros%1000] = true
		}
		if len(fractions) < 2 {
			t.Errorf("all times end in %v, should have microseconds", fractions)
		}
	})
	t.Run("expires keys as time goes by", func(t *testing.T) {
		const life = 600 * time.Millisecond
		if err := client.Set(t.Context(), "long", "v", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		// A key written just before a tick loses up to a tick of its life, which is long on a busy machine.
		longest := time.Duration(0)
		for end := time.Now().Add(time.Minute); longest < life-300*time.Millisecond && time.Now().Before(end); {
			longest = max(longest, lifetime(t, client, life))
		}
		if longest < life-300*time.Millisecond {
			t.Errorf("a key lived %s at best, should be about %s", longest, life)
		}
		if left := client.PTTL(t.Context(), "long").Val(); left > time.Hour-life/2 || left < 50*time.Minute {
			t.Errorf("%s are left of an hour", left)
		}
	})
	t.Run("wakes a blocked reader when a script adds to its stream", func(t *testing.T) {
		if err := client.XGroupCreateMkStream(t.Context(), "ready", "pool", "0").Err(); err != nil {
			t.Fatal(err)
		}
		const readers = 4
		got := make(chan string, readers)
		for i := range readers {
			go func() {
				streams, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{
					Group: "pool", Consumer: fmt.Sprint("worker", i), Streams: []string{"ready", ">"}, Count: 1, Block: 5 * time.Second,
				}).Result()
				if err != nil {
					got <- err.Error()
					return
				}
				got <- streams[0].Messages[0].Values["job"].(string)
			}()
		}
		const script = `for i = 1, 4 do redis.call('XADD', KEYS[1], '*', 'job', 'j' .. i) end`
		if err := client.Eval(t.Context(), script, []string{"ready"}).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		jobs := map[string]bool{}
		for range readers {
			jobs[<-got] = true
		}
		if fmt.Sprint(jobs) != "map[j1:true j2:true j3:true j4:true]" {
			t.Errorf("read %v", jobs)
		}
	})
	t.Run("wakes a reader of a stream without a group", func(t *testing.T) {
		got := make(chan error, 1)
		go func() {
			got <- client.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"wake", "0"}, Block: 5 * time.Second}).Err()
		}()
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "wake", MaxLen: 1, Values: []string{"w", "1"}}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
	t.Run("never gives an entry an id again", func(t *testing.T) {
		const script = `local seen = {}
			for i = 1, 200 do
				local id = redis.call('XADD', KEYS[1], '*', 'job', i)
				if seen[id] then return id end
				seen[id] = true
				redis.call('XDEL', KEYS[1], id)
			end
			return 'new each time'`
		if got := client.Eval(t.Context(), script, []string{"ids"}).Val(); got != "new each time" {
			t.Errorf("id %v came twice", got)
		}
	})
	t.Run("answers NOSCRIPT to a script it does not know", func(t *testing.T) {
		err := client.EvalSha(t.Context(), strings.Repeat("a", 40), nil).Err()
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("error is %v", err)
		}
	})
}

// lifetime returns how long a key is there that has a TTL.
func lifetime(t *testing.T, client *redis.Client, life time.Duration) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := client.Set(t.Context(), "brief", "v", life).Err(); err != nil {
		t.Fatal(err)
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for client.Exists(t.Context(), "brief").Val() == 1 {
		if time.Since(begin) > time.Minute {
			t.Fatal("the key never expired")
		}
		<-poll.C
	}
	return time.Since(begin)
}

func TestMiniredisEnds(t *testing.T) {
	store := openMiniredis(t)
	blocked := make(chan error, 1)
	go func() { blocked <- store.Client().BLPop(t.Context(), time.Minute, "list").Err() }()
	begin := time.Now()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-blocked; err == nil {
		t.Error("the blocked read was answered")
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("closing took %s", took)
	}
	own := redis.NewClient(store.Options())
	defer own.Close()
	if err := own.Ping(t.Context()).Err(); err == nil {
		t.Error("the store still answers")
	}
}
