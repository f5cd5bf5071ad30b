package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

// behind returns a proxy, a client through it, a client past it and a key.
func behind(t *testing.T) (proxy *redistest.Proxy, through, past *redis.Client, key string) {
	t.Helper()
	server := redistest.Shared(t)
	proxy = redistest.NewProxy(t, server.Addr())
	return proxy, proxy.Client(t), server.Client(t), redistest.Prefix(t)
}

func TestProxy(t *testing.T) {
	t.Parallel()
	t.Run("forwards what it is not told to cut", func(t *testing.T) {
		t.Parallel()
		proxy, through, _, key := behind(t)
		binary := "\x00\r\n$5\r\n*\xff" + strings.Repeat("x", 1<<20)
		must(t, through.Set(t.Context(), key, binary, 0).Err())
		if got := through.Get(t.Context(), key).Val(); got != binary {
			t.Errorf("%d bytes came back changed", len(got))
		}
		if got := through.Eval(t.Context(), "return {1, {2, 'x', {}}, false, {ok='fine'}}", nil).Val(); fmt.Sprint(got) != "[1 [2 x []] <nil> fine]" {
			t.Errorf("a nested reply came back as %v", got)
		}
		if err := through.Eval(t.Context(), "return redis.error_reply('BADARG x')", nil).Err(); err == nil || err.Error() != "BADARG x" {
			t.Errorf("an error came back as %v", err)
		}
		if proxy.Commands() != 4 || proxy.Cuts() != 0 {
			t.Errorf("counted %d commands and %d cuts, should be 4 and 0", proxy.Commands(), proxy.Cuts())
		}
	})
	t.Run("cuts before a command, which is not executed", func(t *testing.T) {
		t.Parallel()
		proxy, through, past, key := behind(t)
		proxy.CutEvery(3, redistest.CutBefore)
		failures := increments(t, through, key, 9)
		if got, _ := past.Get(t.Context(), key).Int(); got != 6 || failures != 3 || proxy.Cuts() != 3 {
			t.Errorf("%d increments, %d failures, %d cuts; should be 6, 3, 3", got, failures, proxy.Cuts())
		}
	})
	t.Run("cuts after a command, which is executed", func(t *testing.T) {
		t.Parallel()
		proxy, through, past, key := behind(t)
		proxy.CutEvery(3, redistest.CutAfter)
		failures := increments(t, through, key, 9)
		if got, _ := past.Get(t.Context(), key).Int(); got != 9 || failures != 3 || proxy.Cuts() != 3 {
			t.Errorf("%d increments, %d failures, %d cuts; should be 9, 3, 3", got, failures, proxy.Cuts())
		}
	})
	t.Run("cuts at every command", func(t *testing.T) {
		t.Parallel()
		proxy, through, past, key := behind(t)
		proxy.CutEvery(1, redistest.CutAfter)
		if failures := increments(t, through, key, 5); failures != 5 {
			t.Errorf("%d failures, should be 5", failures)
		}
		proxy.Decide(nil)
		if failures := increments(t, through, key, 5); failures != 0 {
			t.Errorf("%d failures, should be 0", failures)
		}
		if got, _ := past.Get(t.Context(), key).Int(); got != 10 {
			t.Errorf("%d increments, should be 10", got)
		}
	})
	t.Run("says that it cuts once Redis has executed the command, or not at all", func(t *testing.T) {
		t.Parallel()
		proxy, through, past, key := behind(t)
		for want, cut := range []redistest.Cut{redistest.CutBefore, redistest.CutAfter} {
			seen := make(chan int, 1)
			proxy.Decide(func(redistest.Command) redistest.Action {
				return redistest.Action{Cut: cut, OnCut: func() {
					n, _ := past.Get(t.Context(), key).Int()
					seen <- n
				}}
			})
			if failures := increments(t, through, key, 1); failures != 1 {
				t.Errorf("%d failures, should be 1", failures)
			}
			if got := <-seen; got != want {
				t.Errorf("saw %d increments, should be %d", got, want)
			}
		}
	})
	t.Run("cuts by name and arguments", func(t *testing.T) {
		t.Parallel()
		proxy, through, past, key := behind(t)
		proxy.Decide(func(command redistest.Command) redistest.Action {
			if command.Name == "SET" && command.Args[1] == "cut" {
				return redistest.Action{Cut: redistest.CutBefore}
			}
			return redistest.Action{}
		})
		must(t, through.Set(t.Context(), key, "pass", 0).Err())
		if err := through.Set(t.Context(), key, "cut", 0).Err(); err == nil {
			t.Error("the cut command was answered")
		}
		if got := past.Get(t.Context(), key).Val(); got != "pass" {
			t.Errorf("the key holds %q, should be pass", got)
		}
	})
	t.Run("delays", func(t *testing.T) {
		t.Parallel()
		proxy, through, past, key := behind(t)
		must(t, through.Ping(t.Context()).Err())
		proxy.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Delay: 80 * time.Millisecond} })
		begin := time.Now()
		must(t, through.Incr(t.Context(), key).Err())
		if took := time.Since(begin); took < 80*time.Millisecond {
			t.Errorf("took %s, should be 80ms at least", took)
		}
		must(t, past.Get(t.Context(), key).Err())
	})
	t.Run("delays longer than the test lasts", func(t *testing.T) {
		t.Parallel()
		proxy, through, _, key := behind(t)
		proxy.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Delay: time.Hour} })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := through.Incr(ctx, key).Err(); err == nil {
			t.Error("the delayed command was answered")
		}
	})
	t.Run("severs a connection that waits, which can be made again", func(t *testing.T) {
		t.Parallel()
		proxy, through, _, key := behind(t)
		proxy.Decide(func(command redistest.Command) redistest.Action {
			if command.Name == "BLPOP" {
				time.AfterFunc(20*time.Millisecond, proxy.Sever)
			}
			return redistest.Action{}
		})
		if err := through.BLPop(t.Context(), 5*time.Second, key).Err(); err == nil || errors.Is(err, redis.Nil) {
			t.Errorf("the read ended with %v", err)
		}
		must(t, through.Ping(t.Context()).Err())
	})
	t.Run("ends a client's connection when Redis does", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		through := redistest.NewProxy(t, server.Addr()).Client(t)
		must(t, through.Ping(t.Context()).Err())
		server.Kill(t)
		if err := through.Ping(t.Context()).Err(); err == nil {
			t.Error("a killed server answered")
		}
		server.Restart(t)
		must(t, through.Ping(t.Context()).Err())
	})
	t.Run("waits for the reply of a blocking command before it drops it", func(t *testing.T) {
		t.Parallel()
		proxy, through, past, key := behind(t)
		proxy.CutEvery(1, redistest.CutAfter)
		time.AfterFunc(50*time.Millisecond, func() { past.RPush(context.WithoutCancel(t.Context()), key, "element") })
		if err := through.BLPop(t.Context(), 5*time.Second, key).Err(); err == nil {
			t.Error("the reply was delivered")
		}
		if left := past.LLen(t.Context(), key).Val(); left != 0 {
			t.Errorf("%d elements left, should be popped", left)
		}
	})
}

// increments runs INCR n times and returns how many failed.
func increments(t *testing.T, client *redis.Client, key string, n int) (failures int) {
	t.Helper()
	for range n {
		if err := client.Incr(t.Context(), key).Err(); err != nil {
			failures++
		}
	}
	return failures
}

// TestPipeline cuts inside pipelines of random length and checks each command: those before the cut are answered,
// the one that is cut is executed or not as told, those behind it never are. It reads the replies itself, because
// go-redis gives all commands of a broken pipeline the error of one.
func TestPipeline(t *testing.T) {
	t.Parallel()
	for _, cut := range []redistest.Cut{redistest.CutBefore, redistest.CutAfter} {
		t.Run(fmt.Sprintf("cut %d", cut), func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			proxy := redistest.NewProxy(t, server.Addr())
			past := server.Client(t)
			for round := range 100 {
				key := redistest.Prefix(t)
				length := 1 + rand.IntN(40)
				at := rand.IntN(length)
				first := proxy.Commands()
				proxy.Decide(func(command redistest.Command) redistest.Action {
					if command.Index == first+at+1 {
						return redistest.Action{Cut: cut}
					}
					return redistest.Action{}
				})
				var pipeline strings.Builder
				for range length {
					value := strings.Repeat("x", rand.IntN(3000))
					fmt.Fprintf(&pipeline, "*3\r\n$5\r\nRPUSH\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
				}
				answered := strings.Count(exchange(t, proxy.Addr(), pipeline.String()), ":")
				executed := at
				if cut == redistest.CutAfter {
					executed++
				}
				if pushed := past.LLen(t.Context(), key).Val(); answered != at || pushed != int64(executed) {
					t.Fatalf("round %d: %d commands, cut at %d: %d answered, %d executed; should be %d, %d",
						round, length, at, answered, pushed, at, executed)
				}
			}
		})
	}
}

// exchange sends the parts on a connection of its own and returns all that is answered until it ends.
func exchange(t *testing.T, addr string, parts ...string) string {
	t.Helper()
	dialer := net.Dialer{}
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	for _, part := range parts {
		_, err := io.WriteString(conn, part)
		must(t, err)
	}
	must(t, conn.(*net.TCPConn).CloseWrite())
	replies, err := io.ReadAll(conn)
	must(t, err)
	return string(replies)
}

// TestConcurrent runs many clients against a proxy that cuts at random: what was answered was executed once, and
// what was not answered was executed if and only if its reply was cut.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr())
	key := redistest.Prefix(t)
	before, after := 0, 0 // Guarded by the proxy: its questions do not overlap.
	proxy.Decide(func(redistest.Command) redistest.Action {
		switch rand.IntN(8) {
		case 0:
			before++
			return redistest.Action{Cut: redistest.CutBefore}
		case 1:
			after++
			return redistest.Action{Cut: redistest.CutAfter}
		}
		return redistest.Action{}
	})
	const clients, each = 8, 100
	through := proxy.Client(t)
	failures := make([]int, clients)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() { failures[i] = increments(t, through, key, each) })
	}
	running.Wait()
	failed := 0
	for _, n := range failures {
		failed += n
	}
	proxy.Decide(nil)
	executed, err := server.Client(t).Get(t.Context(), key).Int()
	must(t, err)
	if proxy.Cuts() != before+after || failed != before+after || executed != clients*each-before {
		t.Errorf("%d cuts, %d failures, %d executed; should be %d, %d, %d",
			proxy.Cuts(), failed, executed, before+after, before+after, clients*each-before)
	}
}

// TestRaw speaks to Redis through the proxy without a client: inline commands, RESP3 types, a torn write.
func TestRaw(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr())
	key := redistest.Prefix(t)
	script := []string{
		"PING\r\n", "\r\n", "HELLO 3\r\n", "DEBUG PROTOCOL attrib\r\n", "DEBUG PROTOCOL push\r\n", "DEBUG PROTOCOL map\r\n",
		"DEBUG PROTOCOL set\r\n", "DEBUG PROTOCOL double\r\n", "DEBUG PROTOCOL bignum\r\n", "DEBUG PROTOCOL null\r\n",
		"DEBUG PROTOCOL verbatim\r\n", "DEBUG PROTOCOL true\r\n", "SET " + key, " v\r\n*2\r\n$3\r\nG", "ET\r\n$" + strconv.Itoa(len(key)) + "\r\n" + key + "\r\n",
	}
	strip := func(replies string) string { // HELLO answers the connection's number.
		_, after, _ := strings.Cut(replies, "$4\r\nmode")
		return after
	}
	direct, proxied := strip(exchange(t, server.Addr(), script...)), strip(exchange(t, proxy.Addr(), script...))
	if direct != proxied || !strings.HasSuffix(direct, "$1\r\nv\r\n") {
		t.Errorf("direct:\n%q\nthrough the proxy:\n%q", direct, proxied)
	}
}

// TestPush cuts behind a command whose reply has a push before it, on Valkey behind it: the push answers no command.
func TestPush(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	proxy.CutEvery(2, redistest.CutAfter)
	replies := exchange(t, proxy.Addr(), "HELLO 3\r\nDEBUG PROTOCOL push\r\nPING\r\n")
	if !strings.Contains(replies, "server-cpu-usage") || !strings.Contains(replies, "following the push reply\r\n") || strings.Contains(replies, "PONG") {
		t.Errorf("replies are %q, should end before PONG", replies)
	}
}
