package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redistest"
)

// open opens a store that ends with the test and returns what it logged.
func open(t *testing.T, config embedded.Config) (*embedded.Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	config.Log = &log
	store, err := embedded.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, &log
}

func TestOpenAddress(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, addr := range []string{server.Addr(), "redis://" + server.Addr(), "redis://" + server.Addr() + "/3"} {
		t.Run("takes "+strings.Replace(addr, server.Addr(), "host:port", 1), func(t *testing.T) {
			t.Parallel()
			store, log := open(t, embedded.Config{Addr: addr})
			if store.Kind() != embedded.KindAddress || store.Options().Addr != server.Addr() {
				t.Errorf("opened %s", store)
			}
			if log.Len() > 0 {
				t.Errorf("logged %q", log)
			}
			key := redistest.Prefix(t)
			if err := store.Client().Set(t.Context(), key, "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			own := redis.NewClient(store.Options())
			defer own.Close()
			if got := own.Get(t.Context(), key).Val(); got != "v" {
				t.Errorf("a client of its own read %q", got)
			}
		})
	}
	t.Run("leaves the Redis alone when it closes", func(t *testing.T) {
		t.Parallel()
		store, _ := open(t, embedded.Config{Addr: server.Addr()})
		for range 2 {
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := server.Client(t).Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	const secret = "s3cr/t@#?"
	server := redistest.Start(t, redistest.Options{Args: []string{"--requirepass", secret}})
	const encoded = "s3cr%2Ft%40%23%3F"
	for name, config := range map[string]embedded.Config{
		"in the URL":               {Addr: "redis://:" + encoded + "@" + server.Addr()},
		"with a user":              {Addr: "redis://default:" + encoded + "@" + server.Addr()},
		"beside the address":       {Addr: server.Addr(), Password: secret},
		"beside, over the URL's":   {Addr: "redis://:wrong@" + server.Addr(), Password: secret},
		"user and password beside": {Addr: server.Addr(), Username: "default", Password: secret},
	} {
		t.Run("are taken "+name, func(t *testing.T) {
			t.Parallel()
			store, _ := open(t, config)
			for _, text := range []string{store.String(), fmt.Sprint(store), fmt.Sprintf("%v %+v", store, store)} {
				if strings.Contains(text, "s3cr") {
					t.Errorf("%q holds the secret", text)
				}
			}
		})
	}
	for name, addr := range map[string]string{
		"none":  server.Addr(),
		"wrong": "redis://default:wr0ng@" + server.Addr(),
	} {
		t.Run("that are "+name+" are an error that says so", func(t *testing.T) {
			t.Parallel()
			_, err := embedded.Open(t.Context(), embedded.Config{Addr: addr})
			if err == nil || !strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestBadAddress(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{
		"localhost", "6379", ":6379", "host:", "s3cret@host:6379", "user:s3cret@host:6379",
		"http://u:s3cret@host:6379", "redis://", "redis:///0", "redis://:s3cret@", "redis://u:s3c%ret@host:6379",
		"redis://u:s3/cret@host:6379", "redis://u:s3#cret@host", "redis://u:s3?cret@host:6379", "redis://u:s3cret@host:port",
		"redis://u:s3cret@host:6379/abc", "redis://u:s3cret@host:6379?s3cret=1", "redis://u:s3cret@host:6379?db=s3cret",
		"redis://p/s3cret@host:6379", "redis://p s3cret@host:6379", "s3cret://host:6379", "memory:", "memory://s3cret",
	} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			_, err := embedded.Open(t.Context(), embedded.Config{Addr: addr})
			if _, ok := errors.AsType[*embedded.AddressError](err); !ok {
				t.Fatalf("error is %v, should be an AddressError", err)
			}
			if text := err.Error(); strings.Contains(text, "s3") || strings.Contains(text, "cret") || !strings.Contains(text, "redis://user:password@host:port") {
				t.Errorf("error is %q", text)
			}
		})
	}
	t.Run("a negative pool size", func(t *testing.T) {
		t.Parallel()
		if _, err := embedded.Open(t.Context(), embedded.Config{PoolSize: -1}); err == nil || !strings.Contains(err.Error(), "PoolSize -1") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	paused := redistest.Start(t, redistest.Options{})
	paused.Pause(t)
	killed := redistest.Start(t, redistest.Options{})
	killed.Kill(t)
	alive := redistest.Shared(t)
	for name, row := range map[string]struct{ addr, advice string }{
		"nobody listens":       {killed.Addr(), "start Redis"},
		"nobody answers":       {paused.Addr(), "does not answer"},
		"not a Redis":          {listener(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), "address is that of a Redis"},
		"it hangs up":          {listener(t, ""), "rediss://"},
		"it speaks no TLS":     {"rediss://" + alive.Addr(), "TLS"},
		"no such host":         {"headgate.invalid:6379", "host's name"},
		"no such database":     {"redis://" + alive.Addr() + "/999", "no such database"},
		"nobody listens, TLS":  {"rediss://" + killed.Addr(), "start Redis"},
		"nobody answers, a DB": {"redis://" + paused.Addr() + "/1", "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			_, err := embedded.Open(t.Context(), embedded.Config{Addr: row.addr})
			if err == nil || !strings.Contains(err.Error(), row.advice) {
				t.Errorf("error is %v, should say %q", err, row.advice)
			}
			// 2 s is the law; the rest is for a machine that is busy.
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("took %s, should be 2s at most", took)
			}
		})
	}
	t.Run("a ctx that ends first", func(t *testing.T) {
		t.Parallel()
		soon(t, time.Second, func() { // Else it takes the two seconds of any start.
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := embedded.Open(ctx, embedded.Config{Addr: paused.Addr()}); err == nil {
				t.Error("a paused server answered")
			}
		})
	})
}

// TestAdviceTellsKeysFromCommands: Redis refuses both as NOPERM, and what helps against the one does not help against the other.
func TestAdviceTellsKeysFromCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	root := server.Client(t)
	if err := root.Do(t.Context(), "ACL", "SETUSER", "some", "on", ">secret", "~hg{0}:*", "-@all", "+@connection", "+get", "+eval").Err(); err != nil {
		t.Fatal(err)
	}
	options := server.Options()
	options.Username, options.Password = "some", "secret"
	client := redis.NewClient(options)
	defer client.Close()
	for name, row := range map[string]struct {
		err    error
		advice string
	}{
		"keys":               {client.Get(t.Context(), "hg{1.723}:policy").Err(), "may not touch these keys"},
		"keys of a script":   {client.Eval(t.Context(), "return redis.call('GET', 'hg{1.723}:policy')", nil).Err(), "may not touch these keys"},
		"a command":          {client.Set(t.Context(), "hg{0}:policy", "1", 0).Err(), "may not run that command"},
		"keys, by Redis 8":   {said("NOPERM No permissions to access a key"), "may not touch these keys"},
		"a command, Redis 8": {said("NOPERM User some has no permissions to run the 'randomkey' command"), "may not run that command"},
	} {
		if row.err == nil || !strings.Contains(embedded.Advice(row.err), row.advice) {
			t.Errorf("%s: %v: %q", name, row.err, embedded.Advice(row.err))
		}
	}
}

// said is an answer of a Redis that is not here.
type said string

// Error is what it said.
func (s said) Error() string { return string(s) }

// RedisError marks it.
func (s said) RedisError() {}

// soon calls until that takes no longer than bound, for a minute: what waits by design waits every time.
func soon(t *testing.T, bound time.Duration, call func()) {
	t.Helper()
	least := time.Hour
	for end := time.Now().Add(time.Minute); least > bound && time.Now().Before(end); {
		begin := time.Now()
		call()
		least = min(least, time.Since(begin))
	}
	if least > bound {
		t.Errorf("took %s at best, want %s", least, bound)
	}
}

// listener accepts connections, reads once, answers and hangs up.
func listener(t *testing.T, answer string) string {
	t.Helper()
	var config net.ListenConfig
	listening, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listening.Close() })
	go func() {
		for {
			conn, err := listening.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte(answer))
			_ = conn.Close()
		}
	}()
	return listening.Addr().String()
}

func TestPrivateRedis(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	redistest.Shared(t) // Skips or fails as the others do.
	store, log := open(t, embedded.Config{})
	t.Run("is a server of its own that says so in one line", func(t *testing.T) {
		if store.Kind() != embedded.KindRedis && store.Kind() != embedded.KindValkey {
			t.Errorf("opened %s", store)
		}
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), store.Options().Addr) {
			t.Errorf("logged %q", log)
		}
		for setting, want := range map[string]string{"appendonly": "no", "save": "", "bind": "127.0.0.1", "maxmemory-policy": "noeviction"} {
			if got := store.Client().ConfigGet(t.Context(), setting).Val()[setting]; got != want {
				t.Errorf("%s is %q, should be %q", setting, got, want)
			}
		}
	})
	t.Run("leaves no server and no directory behind", func(t *testing.T) {
		if dirs, _ := filepath.Glob(filepath.Join(temp, "headgate-redis-*")); len(dirs) != 1 {
			t.Errorf("directories are %q, should be one", dirs)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if dirs, _ := filepath.Glob(filepath.Join(temp, "headgate-redis-*")); len(dirs) != 0 {
			t.Errorf("directories %q are left", dirs)
		}
		own := redis.NewClient(store.Options())
		defer own.Close()
		if err := own.Ping(t.Context()).Err(); err == nil {
			t.Error("the server still answers")
		}
	})
	t.Run("that is not there is an error that says what to do", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := embedded.Open(t.Context(), embedded.Config{})
		if !errors.Is(err, embedded.ErrNoServer) || !strings.Contains(err.Error(), "install Redis") || !strings.Contains(err.Error(), "redis://host:6379") {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("that does not start is an error that quotes it", func(t *testing.T) {
		dir := t.TempDir()
		broken := filepath.Join(dir, "redis-server")
		if err := os.WriteFile(broken, []byte("#!/bin/sh\necho out of luck; exit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		_, err := embedded.Open(t.Context(), embedded.Config{})
		if err == nil || !strings.Contains(err.Error(), "out of luck") || !strings.Contains(err.Error(), "address") {
			t.Errorf("error is %v", err)
		}
		if dirs, _ := filepath.Glob(filepath.Join(temp, "headgate-redis-*")); len(dirs) != 0 {
			t.Errorf("directories %q are left", dirs)
		}
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	t.Run("never let go-redis send a command twice", func(t *testing.T) {
		t.Parallel()
		proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
		store, _ := open(t, embedded.Config{Addr: "redis://" + proxy.Addr() + "?max_retries=5"})
		key := redistest.Prefix(t)
		proxy.CutEvery(1, redistest.CutAfter)
		if err := store.Client().Incr(t.Context(), key).Err(); err == nil {
			t.Error("the command was answered")
		}
		if got := redistest.Shared(t).Client(t).Get(t.Context(), key).Val(); got != "1" {
			t.Errorf("the key holds %q, should be 1", got)
		}
	})
	t.Run("keep the time-outs of the URL", func(t *testing.T) {
		t.Parallel()
		store, _ := open(t, embedded.Config{Addr: "redis://" + redistest.Shared(t).Addr() + "?read_timeout=7s&pool_size=3"})
		options := store.Options()
		if options.ReadTimeout != 7*time.Second || options.PoolSize != 3 || options.DialTimeout != redisclient.DefaultDialTimeout {
			t.Errorf("read %s, pool %d, dial %s", options.ReadTimeout, options.PoolSize, options.DialTimeout)
		}
	})
	t.Run("let a blocking read outlast the read time-out", func(t *testing.T) {
		t.Parallel()
		store, _ := open(t, embedded.Config{Addr: redistest.Shared(t).Addr()})
		begin := time.Now()
		err := store.Client().BLPop(t.Context(), time.Second, redistest.Prefix(t)).Err()
		if !errors.Is(err, redis.Nil) || time.Since(begin) < redisclient.DefaultTimeout {
			t.Errorf("the read ended with %v after %s", err, time.Since(begin))
		}
	})
	t.Run("end a blocking read at the deadline of its ctx", func(t *testing.T) {
		t.Parallel()
		store, _ := open(t, embedded.Config{Addr: redistest.Shared(t).Addr()})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := store.Client().BLPop(ctx, time.Minute, redistest.Prefix(t)).Err(); err == nil || time.Since(begin) > 30*time.Second {
			t.Errorf("the read ended with %v after %s", err, time.Since(begin))
		}
	})
	t.Run("fail a call at once where nobody listens", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		store, _ := open(t, embedded.Config{Addr: server.Addr()})
		server.Kill(t)
		soon(t, 250*time.Millisecond, func() {
			if err := store.Client().Ping(t.Context()).Err(); err == nil {
				t.Error("a killed server answered")
			}
		})
	})
}
