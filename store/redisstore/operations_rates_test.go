package redisstore_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// rates counts what was decided, notes rates that are not usual, and reads both.
func (w *walk) rates() {
	counts, named := []store.ScopeCount(nil), map[string]bool{} // A call names each once.
	watched := w.number("watched", 0, 2) > 0
	for range w.number("counted", 1, 4) {
		one := store.ScopeCount{Allowed: int64(w.number("allowed", 0, 9)), Refused: int64(w.number("refused", 0, 9)), Tokens: 3, Watched: watched}
		tenant, queue := pick(w, "tenant", walkTenants), pick(w, "queue", walkQueues)
		switch w.number("what", 0, 4) {
		case 4:
			one.Scope, one.OfLimit = admission.Scope(fmt.Sprint("+user:k", w.number("key", 0, 9))), int64(w.number("of the limit", 1, 2_000_000))
		case 0:
			one.Scope, one.Always = admission.Global, true
		case 1:
			one.Scope = admission.Scope(tenant)
		case 2:
			one.Scope = admission.ScopeAt(admission.LevelQueue, tenant, queue, "")
		default:
			one.Queue, one.Watched = queue, true
			for range w.number("names", 0, 3) {
				one.Tenants, one.Jobs = append(one.Tenants, pick(w, "tenant", walkTenants)), append(one.Jobs, fmt.Sprint(tenant, ":", w.number("id", 0, 99)))
			}
		}
		if name := string(one.Scope) + " " + one.Queue; !named[name] {
			counts, named[name] = append(counts, one), true
		}
	}
	w.replied("count", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Count(w.ctx, counts)) })
	at := time.UnixMicro(w.now).Add(-time.Duration(w.number("minutes ago", 0, 2)) * time.Minute)
	w.replied("rates", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Rates(w.ctx, at)) })
	w.replied("nearby", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Nearby(w.ctx, at)) })

	note := store.RateNote{Owner: pick(w, "owner", []string{"s1", "s1", "s1", "s2"}), At: at.Truncate(store.RateStep), Queues: map[string]store.Decided{}}
	for range w.number("noted", 0, 2) {
		note.Queues[pick(w, "queue", walkQueues)] = store.Decided{Allowed: int64(w.number("allowed", 0, 9)), Refused: int64(w.number("refused", 0, 9))}
	}
	w.resend = func() {
		w.replied("note rates", func(s store.Partition) redistest.Reply { return redistest.Replied(true, s.NoteRates(w.ctx, note)) })
	}
	w.resend()
	w.replied("history of rates", func(s store.Partition) redistest.Reply { return redistest.Replied(s.RateHistory(w.ctx, walkQueues...)) })

	of := pick(w, "of", []string{"", walkQueues[0]})
	w.replied("distincts", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Distincts(w.ctx, of)) })

	var odd []store.Anomaly
	for range w.number("odd", 0, 3) {
		odd = append(odd, store.Anomaly{
			Kind: pick(w, "kind", []string{"surge", "silence"}), Of: "tenant", Name: pick(w, "tenant", walkTenants), Minute: at.Truncate(time.Minute),
			Rate: float64(w.number("rate", 0, 99)), Usual: 10.5, Deviation: 3.25, Score: -7.5,
		})
	}
	w.resend = func() {
		w.replied("note", func(s store.Partition) redistest.Reply { return redistest.Replied(s.NoteAnomalies(w.ctx, odd)) })
	}
	w.resend()
	count := w.number("read", 1, 20)
	w.replied("anomalies", func(s store.Partition) redistest.Reply {
		of, err := s.AnomaliesAfter(w.ctx, "", count)
		for i := range of.Entries { // Ids are each store's own.
			of.Entries[i].ID = ""
		}
		return redistest.Replied(of.Entries, of.Gone, of.Kept, err)
	})
	w.replied("counters", func(s store.Partition) redistest.Reply {
		c, err := s.Counters(w.ctx)
		return redistest.Replied(c.Anomalies, err)
	})
}

// TestRatesAreThoseOfTheMinute: of tenants and queues, the same in memory; that scopes made room is noted where somebody looks, and then alone;
// queues beyond MaxWatchedQueues are left out.
func TestRatesAreThoseOfTheMinute(t *testing.T) {
	t.Parallel()
	s, err := redisstore.NewStore(redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)}, "")
	check(t, err)
	now := time.Unix(1800000060, 0)
	m := memory.New(memory.Config{Now: func() time.Time { return now }, KeepEnded: true})
	minute := func(at int64, counts []store.ScopeCount) (r store.Rates) {
		t.Helper()
		now = time.Unix(at*60, 0)
		s.SetTime(now)
		for _, part := range []store.Partition{s, m} {
			done, err := part.Count(t.Context(), counts)
			if err != nil || done != len(counts) {
				t.Fatalf("%d of %d are counted: %v", done, len(counts), err)
			}
		}
		r, err := s.Rates(t.Context(), now)
		check(t, err)
		if other, err := m.Rates(t.Context(), now.Add(time.Minute-1)); err != nil || !reflect.DeepEqual(r, other) {
			t.Errorf("minute %d: %d tenants and %d queues in redis, %d and %d in memory, %v; %+v and %+v", at, len(r.Tenants), len(r.Queues), len(other.Tenants), len(other.Queues), err, r.All, other.All)
		}
		return r
	}
	few := []store.ScopeCount{
		{Scope: admission.Global, Always: true, Allowed: 9, Refused: 4, Watched: true},
		{Scope: "acme", Allowed: 5, Refused: 3, Tokens: 11, Watched: true},
		{Scope: "acme:mail", Allowed: 5, Refused: 3, Watched: true},
		{Queue: "mail", Allowed: 7, Refused: 4, Watched: true},
		{Queue: "mail", Allowed: 1, Watched: true},
	}
	begin := time.Unix(100*60, 0)
	want := store.Rates{
		All: store.Decided{Allowed: 9, Refused: 4}, Tenants: map[string]store.Decided{"acme": {Allowed: 5, Refused: 3, Partial: true}},
		Queues: map[string]store.Decided{"mail": {Allowed: 8, Refused: 4}}, Watched: true, Scopes: map[admission.Scope]store.Minute{
			admission.Global: {At: begin, Allowed: 9, Refused: 4}, "acme": {At: begin, Allowed: 5, Refused: 3, Tokens: 11, Partial: true}, "acme:mail": {At: begin, Allowed: 5, Refused: 3, Partial: true},
		},
	}
	if got := minute(100, few); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i, watched := range []bool{false, true} {
		at := int64(200 + i)
		var crowd []store.ScopeCount
		for i := range store.TopScopes + 1 {
			crowd = append(crowd, store.ScopeCount{Scope: admission.Scope(fmt.Sprint("t", i)), Allowed: int64(10 + i), Watched: watched})
		}
		r := minute(at, crowd)
		if r.Crowded != watched || r.Watched != watched || len(r.Tenants) != store.TopScopes {
			t.Errorf("watched %t: %d tenants, crowded %t", watched, len(r.Tenants), r.Crowded)
		}
		if n := redisconn.Client(s.Conn()).Exists(t.Context(), s.Conn().Partition.Watched(at)).Val(); n == 1 != watched {
			t.Errorf("watched %t: %d keys of it", watched, n)
		}
	}
	var queues []store.ScopeCount
	for i := range store.MaxWatchedQueues + 70 {
		queues = append(queues, store.ScopeCount{Queue: fmt.Sprint("q", i), Allowed: 1, Watched: true})
	}
	if r := minute(400, append(queues, queues[0])); len(r.Queues) != store.MaxWatchedQueues || r.Queues["q0"].Allowed != 2 || r.Queues["q1000"].Allowed != 0 {
		t.Errorf("%d queues, the first %+v", len(r.Queues), r.Queues["q0"])
	}
	if ttl := redisconn.Client(s.Conn()).TTL(t.Context(), s.Conn().Partition.Watched(400)).Val(); ttl <= store.CountedFor || ttl > 2*store.CountedFor {
		t.Errorf("they are kept for %s", ttl)
	}
}

// TestTheHistoryOfRates keeps a point where the holder of the timer lease says so, the later one of two, 8 bytes each; a time of which nobody says
// anything is not known, one at which a queue had nothing is; queues beyond MaxRateQueues in a day are not known in it. The same in memory.
func TestTheHistoryOfRates(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := redisstore.NewStore(client, redisstore.Config{Prefix: redistest.Prefix(t)}, "")
	check(t, err)
	day := time.Now().Truncate(24 * time.Hour)
	now := day.Add(-time.Hour)
	m := memory.New(memory.Config{Now: func() time.Time { return now }})
	both := func(do func(part store.Partition) error) {
		t.Helper()
		for _, part := range []store.Partition{s, m} {
			check(t, do(part))
		}
	}
	at := func(to time.Time) {
		now = to
		s.SetTime(now)
	}
	note := func(owner string, begin time.Time, queues map[string]store.Decided, want error) {
		t.Helper()
		for _, part := range []store.Partition{s, m} {
			if err := part.NoteRates(t.Context(), store.RateNote{Owner: owner, At: begin, Queues: queues}); !errors.Is(err, want) {
				t.Errorf("%T notes with %v, want %v", part, err, want)
			}
		}
	}
	history := func(queues ...string) store.RateHistory {
		t.Helper()
		h, err := s.RateHistory(t.Context(), queues...)
		check(t, err)
		if other, err := m.RateHistory(t.Context(), queues...); err != nil || !other.First.Equal(h.First) || !reflect.DeepEqual(h.Queues, other.Queues) {
			t.Errorf("redis has %d queues from %v, memory %d from %v, and they are not the same", len(h.Queues), h.First, len(other.Queues), other.First)
		}
		if got := h.First.Add(store.RateHistoryLife); !got.Equal(now.Truncate(store.RateStep)) {
			t.Errorf("at %v the history ends at %v", now, got)
		}
		return h
	}
	at(now)
	both(func(part store.Partition) error { _, err := part.Promote(t.Context(), "s1", time.Hour); return err })
	mail := map[string]store.Decided{"mail": {Allowed: 7, Refused: 2}}
	note("s2", now, mail, store.ErrNotHolder)
	note("s1", now, mail, store.ErrNotMeasured)
	both(func(part store.Partition) error {
		return part.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte(`{"version":1}`), Window: time.Minute, Watched: true})
	})
	if keys := client.Keys(t.Context(), s.Conn().Partition.Base()+"rates:*").Val(); len(keys) > 0 {
		t.Errorf("refused notes have left %v", keys)
	}
	note("s1", day.Add(-20*time.Minute), mail, nil)
	note("s1", day.Add(-20*time.Minute), map[string]store.Decided{"mail": {Allowed: 1 << 40, Refused: 3}}, nil)
	note("s1", day, map[string]store.Decided{"post": {Allowed: 1}}, nil)
	at(day.Add(20 * time.Minute))
	h := history("mail", "post", "nobody")
	for queue, want := range map[string][]store.Rate{
		"mail": {{Allowed: store.MaxRate, Refused: 3, Known: true}, {}, {Known: true}, {}},
		"post": {{Known: true}, {}, {Allowed: 1, Known: true}, {}}, "nobody": {{Known: true}, {}, {Known: true}, {}},
	} {
		if got := h.Queues[queue]; len(got) != store.RatePoints || !reflect.DeepEqual(got[len(got)-4:], want) {
			t.Errorf("the last points of %s are %v, want %v", queue, got[len(got)-4:], want)
		}
	}
	many := map[string]store.Decided{}
	for i := range store.MaxRateQueues + 5 {
		many[fmt.Sprintf("q%03d", i)] = store.Decided{Allowed: int64(1000 - i)}
	}
	note("s1", day.Add(10*time.Minute), many, nil)
	h = history("post", "q000", "q198", "q199", "q204")
	for queue, want := range map[string][]store.Rate{
		"post": {{}, {Allowed: 1, Known: true}, {Known: true}}, "q000": {{}, {Known: true}, {Allowed: 1000, Known: true}}, "q198": {{}, {Known: true}, {Allowed: 802, Known: true}},
		"q199": {{}, {}, {}}, "q204": {{}, {}, {}},
	} {
		if got := h.Queues[queue]; !reflect.DeepEqual(got[len(got)-3:], want) {
			t.Errorf("the last points of %s are %v, want %v", queue, got[len(got)-3:], want)
		}
	}
	number, _ := store.RateSlot(day)
	key := s.Conn().Partition.Rates(number)
	if n, ttl := client.HLen(t.Context(), key).Val(), client.TTL(t.Context(), key).Val(); n != int64(store.MaxRateQueues)+2 || ttl <= store.RateHistoryLife || ttl > store.RateHistoryLife+24*time.Hour {
		t.Errorf("a day has %d fields for %v", n, ttl)
	}
	if value := client.HGet(t.Context(), key, "q000").Val(); len(value) != 16 {
		t.Errorf("two points are %d bytes", len(value))
	}
	at(day.Add(store.RateHistoryLife + 10*time.Minute))
	if got := history("post").Queues["post"]; got[0] != (store.Rate{Known: true}) || got[1].Known {
		t.Errorf("what is older than is kept is told: %v", got[:2])
	}
}
