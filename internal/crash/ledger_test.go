package crash_test

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// ledger is what the books of an outage say, read as they grow.
type ledger struct {
	*cast
	// offered counts the jobs that producers were told are in, by downstream.
	offered map[string]int
	calls   []callLine
	starts  []jobLine
	ends    []jobLine
	heard   []heardLine
	lonely  []heardLine
}

// callLine is a call that came to a downstream; at is in nanoseconds.
type callLine struct {
	at         int64
	downstream int
	token      string
}

// jobLine is a job in a worker's hand.
type jobLine struct {
	at              int64
	worker          int
	key, downstream string
	token           string
	outcome         worker.Outcome
	reason          string
}

// heardLine is what a worker heard of a breaker, or said of itself.
type heardLine struct {
	at               int64
	worker           int
	downstream, word string
}

func newLedger(c *cast) *ledger {
	return &ledger{cast: c, offered: map[string]int{}}
}

// follow reads what was written since the last time.
func (l *ledger) follow() {
	l.Helper()
	for _, a := range l.actors {
		text := l.rest(l.book(a.role, a.number))
		for line := range strings.Lines(text) {
			l.note(a.number, strings.Fields(line))
		}
	}
}

func (l *ledger) note(number int, words []string) {
	at := int64(0)
	if len(words) > 1 {
		at, _ = strconv.ParseInt(words[1], 10, 64)
	}
	switch words[0] {
	case "A":
		l.offered[words[2]]++
	case "C":
		l.calls = append(l.calls, callLine{at: at, downstream: number, token: words[3]})
	case "T":
		l.starts = append(l.starts, jobLine{at: at, worker: number, key: words[2], downstream: words[3], token: words[4]})
	case "F":
		f := jobLine{at: at, worker: number, key: words[2], downstream: words[3], token: words[4], outcome: worker.Outcome(words[5])}
		if len(words) > 6 {
			f.reason = words[6]
		}
		l.ends = append(l.ends, f)
	case "K":
		l.heard = append(l.heard, heardLine{at: at, worker: number, downstream: words[2], word: words[3]})
	case "L":
		l.lonely = append(l.lonely, heardLine{at: at, worker: number, downstream: words[2], word: words[3]})
	}
}

// mark is a place in the ledger.
type mark struct{ calls, starts, ends, heard, lonely int }

func (l *ledger) mark() mark {
	l.Helper()
	l.follow()
	return mark{calls: len(l.calls), starts: len(l.starts), ends: len(l.ends), heard: len(l.heard), lonely: len(l.lonely)}
}

// dispatch is an entry of the ready stream, whether its handler began or not.
type dispatch struct {
	millis, seq     int64 // of its id
	key, downstream string
}

// dispatches returns those that are known since a mark, in their order.
func (l *ledger) dispatches(from mark) []dispatch {
	seen := map[string]dispatch{}
	for _, lines := range [][]jobLine{l.starts[from.starts:], l.ends[from.ends:]} {
		for _, line := range lines {
			millis, seq := tokenTime(line.token)
			seen[line.token] = dispatch{millis: millis, seq: seq, key: line.key, downstream: line.downstream}
		}
	}
	all := make([]dispatch, 0, len(seen))
	for _, d := range seen {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b dispatch) int { return cmp.Or(cmp.Compare(a.millis, b.millis), cmp.Compare(a.seq, b.seq)) })
	return all
}

// tokenTime takes the id of a stream's entry apart.
func tokenTime(token string) (millis, seq int64) {
	before, after, _ := strings.Cut(token, "-")
	millis, _ = strconv.ParseInt(before, 10, 64)
	seq, _ = strconv.ParseInt(after, 10, 64)
	return millis, seq
}

// walk is the transitions of one breaker, the oldest first. Its times and those of dispatches are of one Redis, to the
// millisecond.
type walk []store.BreakerEvent

// walks reads all transitions of all breakers.
func walks(tb testing.TB, store store.Deployment) map[string]walk {
	tb.Helper()
	all := map[string]walk{}
	for position := "0-0"; ; {
		events, next, err := store.Partitions()[0].BreakerEvents(tb.Context(), position, -1)
		if err != nil {
			tb.Fatal(err)
		}
		if len(events) == 0 {
			return all
		}
		for _, e := range events {
			all[e.Downstream] = append(all[e.Downstream], e)
		}
		position = next
	}
}

// at returns the state at a time; sure is false in the millisecond of a transition.
func (w walk) at(millis int64) (state breaker.State, sure bool) {
	sure = true
	for i := range w {
		switch id, _ := tokenTime(w[i].ID); {
		case id == millis:
			return state, false
		case id < millis:
			state = w[i].To
		}
	}
	return state, sure
}

// was reports whether the state at a time was certainly the one asked for.
func (w walk) was(state breaker.State, millis int64) bool {
	is, sure := w.at(millis)
	return sure && is == state
}

// trips counts the openings of a closed breaker since a time in milliseconds.
func (w walk) trips(since int64) (n int) {
	for _, e := range w {
		if millis, _ := tokenTime(e.ID); millis >= since && e.From == breaker.Closed && e.To == breaker.Open {
			n++
		}
	}
	return n
}

// state is the present one.
func (w walk) state() breaker.State {
	if len(w) == 0 {
		return breaker.Closed
	}
	return w[len(w)-1].To
}
