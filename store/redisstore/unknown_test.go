package redisstore

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/looking"
)

// bounce lets the job "a" come to the worker at an instant of Redis, and hands it back with a text. It returns for how long it stays
// away.
func (y *yard) bounce(at int64, text string) time.Duration {
	y.tb.Helper()
	y.store.conn.Now = strconv.FormatInt(at, 10)
	y.register(1)
	y.promoteAll()
	y.read(1)
	y.finish("a", store.Finish{Outcome: store.Release, Delay: 400 * time.Millisecond, Text: text})
	sight := y.look("a")
	if sight.Place != admission.PlaceLater {
		y.tb.Fatalf("it is %s", sight.Place)
	}
	return time.Duration(sight.At.UnixMicro()-at) * time.Microsecond
}

// TestAJobOfAnUnknownTypeComesBackEverMoreSeldom lives through an hour of a job that no worker knows, and counts.
func TestAJobOfAnUnknownTypeComesBackEverMoreSeldom(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	start := ahead()
	y.store.conn.Now = strconv.FormatInt(start, 10)
	y.admit(mail("acme", "a"))
	bounces := 0
	for at := start; at < start+time.Hour.Microseconds(); bounces++ {
		wait := y.bounce(at, store.UnknownType+" welcome")
		want := time.Duration(float64(400*time.Millisecond) * min(math.Pow(2, float64(min(bounces, store.HistoryCap-1))/2), 300))
		if wait < want-time.Microsecond || wait > want {
			t.Fatalf("hand-back %d: away for %s, want %s", bounces+1, wait, want)
		}
		at += wait.Microseconds()
	}
	if bounces > 50 { // 9,000 without a backoff
		t.Errorf("it came back %d times in an hour", bounces)
	}
	sight := y.look("a")
	if len(sight.Waits) == 0 || sight.Waits[0].Kind != store.WaitType || !strings.Contains(sight.Waits[0].Text, "knows type welcome: it was handed back 20 times or more in a row") {
		t.Errorf("got %+v", sight.Waits)
	}
	counters, err := y.store.Counters(t.Context())
	check(t, err)
	if got := counters.Unknown["mail"]; got.Count != int64(bounces) || got.Type != "welcome" || got.Last.UnixMicro() < start || len(counters.Unknown) != 1 {
		t.Errorf("got %+v, want %d", counters.Unknown, bounces)
	}
}

// TestOnlyHandBacksInARowCount: what else became of the job, or another reason, begins anew.
func TestOnlyHandBacksInARowCount(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	at := ahead()
	y.store.conn.Now = strconv.FormatInt(at, 10)
	y.admit(mail("acme", "a"))
	const first = 400 * time.Millisecond
	for i, text := range []string{store.UnknownType + " welcome", store.UnknownType + " welcome", "breaker_open", store.UnknownType + " welcome", store.UnknownType, store.UnknownType + "s|unknown_type welcome"} {
		wait := y.bounce(at, text)
		if want := map[bool]time.Duration{true: first * 141421 / 100000, false: first}[i == 1]; wait.Round(time.Millisecond) != want.Round(time.Millisecond) {
			t.Errorf("hand-back %d: away for %s, want %s", i+1, wait, want)
		}
		at += wait.Microseconds()
	}
}

// TestAnUnknownTypeDoesNotKeepAJobBeyondItsDeadline: it is due then, and expires.
func TestAnUnknownTypeDoesNotKeepAJobBeyondItsDeadline(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	at := ahead()
	y.store.conn.Now = strconv.FormatInt(at, 10)
	job := mail("acme", "a")
	job.Deadline = time.UnixMicro(at).Add(3 * time.Second)
	y.admit(job)
	for n := 0; n < 20 && at < job.Deadline.UnixMicro(); n++ {
		at += y.bounce(at, store.UnknownType+" welcome").Microseconds()
	}
	if back := time.UnixMicro(at); !back.Equal(job.Deadline) {
		t.Errorf("it comes back %s after its deadline", back.Sub(job.Deadline))
	}
	y.store.conn.Now = strconv.FormatInt(job.Deadline.UnixMicro()+1, 10)
	y.promoteAll()
	if sight := y.look("a"); sight.Place != store.PlaceDead || sight.Reason != "expired" {
		t.Errorf("it is %s: %s", sight.Place, sight.Reason)
	}
}

// TestHandBacksOfAllPartitionsAddUp by queue, with the latest of them.
func TestHandBacksOfAllPartitionsAddUp(t *testing.T) {
	t.Parallel()
	early, late := store.Unknown{Count: 2, Last: time.UnixMicro(5), Type: "old"}, store.Unknown{Count: 3, Last: time.UnixMicro(7), Type: "new"}
	for _, got := range []store.Unknown{looking.AddUnknown(early, late), looking.AddUnknown(late, early)} {
		if got != (store.Unknown{Count: 5, Last: time.UnixMicro(7), Type: "new"}) {
			t.Errorf("got %+v", got)
		}
	}
	if got := looking.UnknownOf(map[string]string{"ut:mail": "3|7|a|b", "ut:bad": "x|7|a", "ut:short": "1", "left:done": "3"}); len(got) != 1 || got["mail"] != (store.Unknown{Count: 3, Last: time.UnixMicro(7), Type: "a|b"}) {
		t.Errorf("got %+v", got)
	}
}
