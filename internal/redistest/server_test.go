package redistest_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

func TestServer(t *testing.T) {
	t.Parallel()
	t.Run("starts empty and with its options", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{MaxMemory: "64mb", MaxMemoryPolicy: "allkeys-lru", Args: []string{"--hz", "42"}})
		client := server.Client(t)
		for setting, want := range map[string]string{
			"maxmemory": "67108864", "maxmemory-policy": "allkeys-lru", "hz": "42", "appendonly": "no", "save": "",
		} {
			if got := client.ConfigGet(t.Context(), setting).Val()[setting]; got != want {
				t.Errorf("%s is %q, should be %q", setting, got, want)
			}
		}
		if size := client.DBSize(t.Context()).Val(); size != 0 {
			t.Errorf("a new server holds %d keys", size)
		}
	})
	t.Run("forgets everything when killed without an append-only file", func(t *testing.T) {
		t.Parallel()
		if got := killed(t, redistest.Options{}); !errors.Is(got.Err(), redis.Nil) {
			t.Errorf("after Restart: %v, should be nil", got)
		}
	})
	t.Run("keeps its writes when killed with appendfsync always", func(t *testing.T) {
		t.Parallel()
		if got := killed(t, redistest.Options{AppendFsync: "always"}); got.Val() != "kept" {
			t.Errorf("after Restart: %v, should be kept", got)
		}
	})
	t.Run("answers nothing while paused and all of it when resumed", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		client := server.Client(t)
		must(t, client.Ping(t.Context()).Err())
		server.Pause(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := client.Incr(ctx, "n").Err(); err == nil {
			t.Error("a paused server answered")
		}
		server.Resume(t)
		// The increment that timed out has arrived all the same: this is the lost reply of real life.
		for client.Get(t.Context(), "n").Val() != "1" {
			if t.Context().Err() != nil {
				t.Fatal("the increment never arrived")
			}
		}
	})
	t.Run("stops while paused", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		server.Pause(t)
		server.Stop(t)
		server.Restart(t)
		must(t, server.Client(t).Ping(t.Context()).Err())
	})
	t.Run("is shared, with a prefix a test", func(t *testing.T) {
		t.Parallel()
		if one, other := redistest.Shared(t), redistest.Shared(t); one != other {
			t.Error("Shared started two servers")
		}
		one, other := redistest.Prefix(t), redistest.Prefix(t)
		if one == other {
			t.Errorf("two prefixes are %q", one)
		}
		if !regexp.MustCompile(`^[a-z][a-z0-9]+$`).MatchString(one) {
			t.Errorf("prefix %q is no plain word", one)
		}
	})
	t.Run("refuses to end while shared", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		for name, end := range map[string]func(testing.TB){
			"Stop": server.Stop, "Kill": server.Kill, "Pause": server.Pause, "Resume": server.Resume, "Restart": server.Restart,
		} {
			recorder := &recorder{TB: t}
			end(recorder)
			if !strings.Contains(recorder.message, "shared") {
				t.Errorf("%s reported %q, should say that the server is shared", name, recorder.message)
			}
		}
		must(t, server.Client(t).Ping(t.Context()).Err())
	})
}

// killed writes, kills, restarts and reads again.
func killed(t *testing.T, options redistest.Options) *redis.StringCmd {
	t.Helper()
	server := redistest.Start(t, options)
	client := server.Client(t)
	must(t, client.Set(t.Context(), "key", "kept", 0).Err())
	addr := server.Addr()
	server.Kill(t)
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed server answered")
	}
	server.Restart(t)
	if server.Addr() != addr {
		t.Fatalf("address is %s, was %s", server.Addr(), addr)
	}
	return server.Client(t).Get(t.Context(), "key")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	server := redistest.SharedCluster(t)
	t.Run("owns every slot", func(t *testing.T) {
		t.Parallel()
		info := server.Client(t).ClusterInfo(t.Context()).Val()
		for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384"} {
			if !strings.Contains(info, want) {
				t.Errorf("CLUSTER INFO says\n%s\nshould have %s", info, want)
			}
		}
	})
	t.Run("serves a plain client and a cluster client", func(t *testing.T) {
		t.Parallel()
		key := redistest.Prefix(t)
		must(t, server.ClusterClient(t).Set(t.Context(), key, "v", 0).Err())
		if got := server.Client(t).Get(t.Context(), key).Val(); got != "v" {
			t.Errorf("the plain client read %q", got)
		}
	})
	t.Run("refuses a script that touches a slot it did not declare", func(t *testing.T) {
		t.Parallel()
		const script = "#!lua\nreturn redis.call('GET', 'b')"
		if err := server.Client(t).Eval(t.Context(), script, []string{"a"}).Err(); err == nil {
			t.Error("the script ran")
		}
	})
	t.Run("starts for one test too", func(t *testing.T) {
		t.Parallel()
		own := redistest.StartCluster(t)
		if own.Addr() == server.Addr() {
			t.Error("StartCluster returned the shared one")
		}
		own.Kill(t)
	})
}

// recorder takes the place of a test that is expected to fail.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Errorf(format string, _ ...any) { r.message = format }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
