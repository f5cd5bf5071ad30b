//go:build unix

package redistest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// BigVariable is the size of what is loaded into a Watched server, in per cent of `make big`, and asks for its calls to be held to LongestCall.
// Without it a test is small, and sees that all of it works.
const BigVariable = "HEADGATE_BIG"

// LongestCall is how long a call may hold Redis up.
const LongestCall = 5 * time.Millisecond

const smallPercent = 0.2

// Watched is a server whose SLOWLOG tells the calls that took longer than they may.
type Watched struct {
	*Server

	client  *redis.Client
	percent float64
	timed   bool
	// waited is how long Redis had waited for a processor when Held last looked.
	waited time.Duration
}

// StartWatched starts a server for a test of a big deployment.
func StartWatched(tb testing.TB) *Watched {
	tb.Helper()
	w := &Watched{percent: smallPercent}
	if text, timed := os.LookupEnv(BigVariable); timed {
		var err error
		if w.percent, err = strconv.ParseFloat(text, 64); err != nil {
			tb.Fatalf("%s: %v", BigVariable, err)
		}
		w.timed = true
	}
	w.Server = Start(tb, Options{Args: []string{"--slowlog-log-slower-than", strconv.FormatInt(LongestCall.Microseconds(), 10), "--slowlog-max-len", "1000"}})
	if w.client = w.Client(tb); w.timed {
		w.Prefer(tb)
		w.touchMemory(tb)
	}
	w.waited = w.waitedForProcessor(tb)
	return w
}

// touchMemory has the server ask the kernel for 3 GiB once, and keep them where MALLOC_CONF says so (make big): what its SLOWLOG says of a call is
// then not that the kernel gave a page to it or took some back, 5 to 7 ms in one of some thousand calls on a machine that is one of many on its host.
func (w *Watched) touchMemory(tb testing.TB) {
	tb.Helper()
	const pieces, piece = 48, 64 << 20
	for i := range pieces {
		if err := w.client.SetRange(tb.Context(), fmt.Sprint("touched:", i), piece-1, "x").Err(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.client.FlushAll(tb.Context()).Err(); err != nil {
		tb.Fatal(err)
	}
	if err := w.client.Do(tb.Context(), "slowlog", "reset").Err(); err != nil {
		tb.Fatal(err)
	}
}

// Size is how many there are to be of what a whole deployment has so many of.
func (w *Watched) Size(whole int) int { return max(20, int(float64(whole)*w.percent/100)) }

// Held fails the test for what Redis took too long for since the last time, if it is timed, and else tells of it. That Redis compiles the scripts, once
// a release and layout, is 10 to 20 ms and nobody's call. Nor is what Redis waited for a processor, as far as Linux tells it: one that is preferred
// (Server.Prefer) and busy all the time is made to wait for 20 to 40 ms of a second.
func (w *Watched) Held(tb testing.TB, what string) {
	tb.Helper()
	before := w.waited
	w.waited = w.waitedForProcessor(tb)
	waited := w.waited - before
	found, err := w.client.SlowLogGet(tb.Context(), 100).Result()
	if err == nil {
		err = w.client.Do(tb.Context(), "slowlog", "reset").Err()
	}
	if err != nil {
		tb.Fatalf("read the slow log: %v", err)
	}
	for _, s := range found {
		tell := tb.Logf
		if w.timed && s.Args[0] != "function" && s.Duration-waited > LongestCall {
			tell = tb.Errorf
		}
		tell("%s: %s, of which Redis waited for a processor for up to %s, for %.120s", what, s.Duration, waited, fmt.Sprint(s.Args))
	}
}

// waitedForProcessor is how long the thread that carries commands out has been ready to run and had no processor, zero where nobody tells.
func (w *Watched) waitedForProcessor(tb testing.TB) time.Duration {
	tb.Helper()
	id := w.client.InfoMap(tb.Context(), "server").Item("Server", "process_id")
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/schedstat", id, id))
	if err != nil {
		return 0
	}
	var ran, waited time.Duration
	if _, err := fmt.Sscan(string(text), &ran, &waited); err != nil {
		tb.Fatalf("read what Redis waited for a processor: %v", err)
	}
	return waited
}
