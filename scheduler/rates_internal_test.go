package scheduler

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/anomaly"
	"github.com/headgate/headgate/store"
)

// TestNoPointIsLostOrMadeUp walks through hours of minutes in which queues have something, nothing, are not counted, or Redis is away, with holders that
// die before and after each write, and others that begin with the hour before. What is kept is what was decided, of whole points alone; of minutes that
// were counted none is missing whose hour somebody lived to see.
func TestNoPointIsLostOrMadeUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const minutes, busy, idle, uncounted, away = 300, 0, 1, 2, 3
		begin := int64(1_700_000_000/60) - rapid.Int64Range(0, rateMinutes-1).Draw(t, "begin")
		truth, what := map[int64]store.Rates{}, map[int64]int{}
		for at := begin; at < begin+minutes; {
			kind := rapid.SampledFrom([]int{busy, busy, busy, idle, uncounted, away}).Draw(t, "kind")
			for range rapid.IntRange(1, 40).Draw(t, "minutes") {
				r := store.Rates{Queues: map[string]store.Decided{}}
				if kind == busy || kind == uncounted {
					r.All = store.Decided{Allowed: 9, Refused: 2}
				}
				if r.Watched = kind == busy; r.Watched {
					for _, queue := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"mail", "hook"}), rapid.ID[string]).Draw(t, "queues") {
						r.Queues[queue] = store.Decided{Allowed: rapid.Int64Range(0, 9).Draw(t, "allowed"), Refused: rapid.Int64Range(0, 9).Draw(t, "refused")}
					}
				}
				truth[at], what[at] = r, kind
				at++
			}
		}
		kept := map[int64]map[string]store.Decided{}
		keep := func(n *store.RateNote) { kept[n.At.Unix()/60] = n.Queues }
		seen := map[int64]map[int64]bool{} // by when a holder began, the minutes that it read while they were kept, and lived to write
		holder, last, began := chart{}, int64(0), int64(0)
		for now := begin + 1; now < begin+minutes; now++ {
			if what[now] == away {
				continue // Nobody looks.
			}
			if last == 0 || now-1-last > anomaly.History {
				holder, began = chart{}, now
			}
			from, justOver := max(last+1, now-anomaly.History, begin), last == now-2
			for at := from; at < now; at++ {
				r := truth[at]
				holder.observe(at, &r, justOver)
			}
			last = now - 1
			dies := rapid.SampledFrom([]string{"", "", "", "", "", "before", "after"}).Draw(t, "dies")
			for i := range holder.unkept {
				if dies == "before" {
					break
				}
				keep(&holder.unkept[i])
				if dies == "after" {
					break
				}
			}
			if dies == "" {
				holder.unkept = nil
				if seen[began] == nil {
					seen[began] = map[int64]bool{}
				}
				for at := max(began-anomaly.History, begin); at < now; at++ {
					seen[began][at] = true
				}
			} else {
				holder, last, began = chart{}, 0, now+1
			}
		}
		for at, queues := range kept {
			want := map[string]store.Decided{}
			for minute := at; minute < at+rateMinutes; minute++ {
				if what[minute] == uncounted || what[minute] == away {
					t.Fatalf("minute %d of the point at %d is not known, and it is kept", minute-at, at)
				}
				for name, one := range truth[minute].Queues {
					sum := want[name]
					want[name] = store.Decided{Allowed: sum.Allowed + one.Allowed, Refused: sum.Refused + one.Refused}
				}
			}
			if !reflect.DeepEqual(queues, want) {
				t.Fatalf("the point at %d is %v, want %v", at, queues, want)
			}
		}
		for at := begin + rateMinutes - begin%rateMinutes; at+rateMinutes < begin+minutes; at += rateMinutes {
			for _, its := range seen { // A point half of which one holder has read and the other half another, hours later, nobody has.
				whole := true
				for minute := at; minute < at+rateMinutes; minute++ {
					whole = whole && what[minute] == busy && its[minute]
				}
				if whole && kept[at] == nil {
					t.Fatalf("the point at %d is lost", at)
				}
			}
		}
	})
}
