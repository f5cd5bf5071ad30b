package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// mourner is a hook that remembers what it was told.
type mourner struct {
	mu   sync.Mutex
	told []scheduler.DeadLetter
	// refuse, if not nil, is asked first.
	refuse func(scheduler.DeadLetter) error
}

func (m *mourner) hook(_ context.Context, letter scheduler.DeadLetter) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		if err := m.refuse(letter); err != nil {
			return err
		}
	}
	m.told = append(m.told, letter)
	return nil
}

// ids returns how often each job was told, as "id*n", by commas.
func (m *mourner) ids() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{}
	for _, letter := range m.told {
		counts[letter.Key.ID]++
	}
	var parts []string
	for id, n := range counts {
		parts = append(parts, fmt.Sprintf("%s*%d", id, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// kill makes a dead letter.
func (b *bench) kill(id, text string) {
	b.tb.Helper()
	b.admit(id)
	lease, ok := b.read()
	if !ok {
		b.tb.Fatal("nothing to read")
	}
	f := store.Finish{Token: lease.Token, Key: admission.Key{Tenant: "acme", ID: id}, Outcome: store.Kill, Reason: "discarded", Text: text}
	if ends, _, err := b.store.Finish(b.tb.Context(), b.pool.ID(), "worker", []store.Finish{f}); err != nil || ends[0] != store.EndedDead {
		b.tb.Fatalf("finish: %v, %v", ends, err)
	}
}

func TestEveryDeadLetterIsToldByOneOfMany(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	store := open(t, client)
	b := newBench(t, store.Partitions()[0])
	var m mourner
	b.kill("before", "it was there already")
	began, err := store.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, store, scheduler.Config{OnDead: m.hook, TimerLease: handOver})
	await(t, "what was there", func() bool { return m.ids() == "before*1" })
	run(t, store, scheduler.Config{OnDead: m.hook, TimerLease: handOver}) // The first holds the timer lease.
	b.kill("between", "one|two")
	await(t, "what came", func() bool { return m.ids() == "before*1,between*1" })
	await(t, "its note", func() bool {
		place := client.HGet(t.Context(), redisstore.Keys(store).Followers(), "on_dead").Val()
		return strings.HasSuffix(place, "|acme:between")
	})
	b.kill("late", "when the other has had a turn to look")
	await(t, "what came late", func() bool { return m.ids() == "before*1,between*1,late*1" })
	stop()
	b.kill("over", "by the other")
	await(t, "the other one", func() bool { return m.ids() == "before*1,between*1,late*1,over*1" })
	m.mu.Lock()
	defer m.mu.Unlock()
	letter := m.told[1]
	now, err := store.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if letter.Key.String() != "acme:between" || letter.Queue != "mail" || letter.Type != "send" || letter.Reason != "discarded" ||
		letter.Text != "one|two" || letter.At.Before(began) || letter.At.After(now) || letter.Attempts != 0 {
		t.Errorf("got %+v", letter)
	}
}

func TestADeadLetterThatIsNotTakenIsToldAgainAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	store := open(t, client)
	b := newBench(t, store.Partitions()[0])
	refusals := 0
	m := mourner{refuse: func(letter scheduler.DeadLetter) error {
		if letter.Key.ID == "b" && refusals < 1 {
			refusals++
			return errors.New("no mail server")
		}
		return nil
	}}
	var said logs
	for _, id := range []string{"a", "b", "c"} {
		b.kill(id, "")
	}
	place := func() string { return client.HGet(t.Context(), redisstore.Keys(store).Followers(), "on_dead").Val() }
	run(t, store, scheduler.Config{OnDead: m.hook, Logger: said.logger(), TimerLease: time.Minute})
	await(t, "the others", func() bool { return m.ids() == "a*1,c*1" })
	await(t, "a place before what is to be told", func() bool { return place() != "" })
	if strings.Contains(place(), "acme:") {
		t.Errorf("the place is %s", place())
	}
	await(t, "the second try", func() bool { return m.ids() == "a*1,b*1,c*1" })
	await(t, "the place behind all", func() bool { return strings.HasSuffix(place(), "|acme:c") })
	if !strings.Contains(said.String(), "no mail server") {
		t.Errorf("the log says\n%s", said.String())
	}
}

func TestManyDeadLettersOfOneMomentAreAllTold(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	store := open(t, client)
	b := newBench(t, store.Partitions()[0])
	b.kill("template", "")
	// By hand: more letters of one time than a page holds.
	record := client.HGet(t.Context(), redisstore.Keys(store).Jobs(), "acme:template").Val()
	at := client.ZScore(t.Context(), redisstore.Keys(store).Dead(), "acme:template").Val()
	const letters = 1000
	pipe := client.Pipeline()
	for i := range letters {
		key := fmt.Sprintf("acme:job-%04d", i)
		pipe.HSet(t.Context(), redisstore.Keys(store).Jobs(), key, record)
		pipe.HSet(t.Context(), redisstore.Keys(store).Why(), key, "poison|")
		pipe.ZIncrBy(t.Context(), redisstore.Keys(store).Dead(), at, key)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	var m mourner
	run(t, store, scheduler.Config{OnDead: m.hook, TimerLease: time.Minute})
	await(t, "all of them", func() bool { return strings.Count(m.ids(), "*1") == letters+1 })
}

func TestAnIdleFollowerSendsOneCommandASecond(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	store := open(t, proxy.Client(t))
	b := newBench(t, store.Partitions()[0])
	b.kill("a", "")
	var m mourner
	run(t, store, scheduler.Config{OnDead: m.hook, TimerLease: time.Minute})
	await(t, "the letter", func() bool { return m.ids() == "a*1" })
	var mu sync.Mutex
	looks := map[string]int{}
	proxy.Decide(func(c redistest.Command) redistest.Action {
		mu.Lock()
		defer mu.Unlock()
		if !c.IsScript() && c.Name != "XREAD" {
			looks[c.Name]++
		}
		return redistest.Action{}
	})
	began := time.Now()
	await(t, "three looks", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return looks["ZRANGEBYSCORE"] >= 3
	})
	mu.Lock()
	defer mu.Unlock()
	passed := time.Since(began)
	if n := looks["ZRANGEBYSCORE"]; n > 1+int(passed/time.Second)+1 || looks["HSET"] > 1 || len(looks) > 2 {
		t.Errorf("in %s: %v", passed, looks)
	}
}

func TestAClockThatIsSetBackHidesNoDeadLetter(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	store := open(t, client)
	b := newBench(t, store.Partitions()[0])
	var m mourner
	var said logs
	// An hour ago the clock of Redis was an hour ahead, and a letter was told.
	place := fmt.Sprint(time.Now().Add(time.Hour).UnixMicro(), "|acme:earlier")
	if err := client.HSet(t.Context(), redisstore.Keys(store).Followers(), "on_dead", place).Err(); err != nil {
		t.Fatal(err)
	}
	run(t, store, scheduler.Config{OnDead: m.hook, Logger: said.logger(), TimerLease: time.Minute})
	redistest.SetState(t, client, redisstore.Keys(store).State(), "t", time.Now().Add(time.Hour).UnixMicro())
	b.kill("a", "")
	await(t, "the step is logged", func() bool { return strings.Contains(said.String(), "clock of redis has stepped") })
	await(t, "the letter", func() bool { return m.ids() == "a*1" })
}
