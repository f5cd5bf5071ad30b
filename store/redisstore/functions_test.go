package redisstore

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// newYardOn is newYard on a Redis of its own.
func newYardOn(t *testing.T, client *redis.Client, prefix string) *yard {
	t.Helper()
	s, err := openOnly(t.Context(), client, Config{Prefix: prefix})
	check(t, err)
	return &yard{tb: t, store: s, client: client, tokens: map[string]string{}}
}

// TestScriptsAreFunctions, where Redis has functions, and texts where this user may not call or load one.
func TestScriptsAreFunctions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules   []any
		asTexts bool
	}{
		"all":               {},
		"no FCALL":          {rules: []any{"-fcall"}, asTexts: true},
		"no FUNCTION LOAD":  {rules: []any{"-function|load"}, asTexts: true},
		"no FUNCTION LIST":  {rules: []any{"-function|list"}},
		"nothing scripting": {rules: []any{"-@scripting", "+eval", "+evalsha"}, asTexts: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			root := server.Client(t)
			check(t, root.Do(t.Context(), append([]any{"ACL", "SETUSER", "some", "on", ">secret", "~*", "&*", "+@all"}, c.rules...)...).Err())
			options := server.Options()
			options.Username, options.Password = "some", "secret"
			client := redis.NewClient(options)
			t.Cleanup(func() { check(t, client.Close()) })
			y := newYardOn(t, client, "hg")
			y.register(2)
			y.admit(mail("acme", "a"), mail("acme", "b"))
			y.read(2)
			y.finish("a", store.Finish{Outcome: store.Complete})
			stats := redistest.CommandStats(t, root)
			functions, texts := stats["fcall"].Calls, stats["evalsha"].Calls
			if c.asTexts && texts < 3 || !c.asTexts && (functions < 3 || texts > 0) {
				t.Errorf("%d functions and %d texts were called", functions, texts)
			}
		})
	}
}

// TestARedisThatForgetsItsFunctionsIsGivenThemAgain: FUNCTION FLUSH under load costs no call and takes no job in twice.
func TestARedisThatForgetsItsFunctionsIsGivenThemAgain(t *testing.T) {
	t.Parallel()
	const producers, each, flushes = 4, 150, 40
	client := redistest.Start(t, redistest.Options{}).Client(t)
	y := newYardOn(t, client, "hg")
	y.register(1)
	var left atomic.Int64
	left.Store(producers)
	var work sync.WaitGroup
	for p := range producers {
		work.Go(func() {
			defer left.Add(-1)
			for i := range each {
				y.admit(mail("acme", strconv.Itoa(p)+"-"+strconv.Itoa(i)))
			}
		})
	}
	flushed := 0
	for ; flushed < flushes || left.Load() > 0; flushed++ {
		check(t, client.FunctionFlush(t.Context()).Err())
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // the pace of flushes
	}
	work.Wait()
	census, err := y.store.Census(t.Context())
	check(t, err)
	if census.Accepted != producers*each || census.Live != producers*each {
		t.Errorf("%d accepted and %d live of %d, while the functions were gone %d times", census.Accepted, census.Live, producers*each, flushed)
	}
}

// TestACallThatBrokeOffLeavesNothing: the library is one for all partitions of a master, so whatever a call had in hand when it raised is not seen
// by the next, be it of the same partition or another.
func TestACallThatBrokeOffLeavesNothing(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	keys := []string{"jobs", "ten:1:mail", "act:1:mail", "lane:1:mail:acme:n", "lanes:1:mail:acme", "due", "waits", "ready:" + yardPool.ID(), "ended:0", "b:acme"}
	for i, key := range keys {
		whole, broken := newYardOn(t, client, "whole"+strconv.Itoa(i)), newYardOn(t, client, "broken"+strconv.Itoa(i))
		for _, y := range []*yard{whole, broken} {
			y.register(2)
			y.admit(mail("acme", "a"), mail("acme", "b"), mail("acme", "c"), mail("bolt", "d"))
			y.read(2)
		}
		at := broken.store.conn.Partition.Base() + key
		existed := client.Exists(t.Context(), at).Val() == 1
		if existed {
			check(t, client.Rename(t.Context(), at, at+".aside").Err())
		}
		check(t, client.Set(t.Context(), at, "wrong type", 0).Err())
		raised := 0
		for id := range 3 {
			job := mail("acme", "x"+strconv.Itoa(id))
			if _, err := broken.store.Admit(t.Context(), 0, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}}); err != nil {
				raised++
			}
			if _, _, err := broken.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{{Token: broken.tokens["a"], Outcome: store.Retry}}); err != nil {
				raised++
			}
		}
		if raised == 0 && existed {
			t.Errorf("nothing raised without %s", key)
		}
		whole.finish("a", store.Finish{Outcome: store.Complete})
		whole.read(1)
		whole.admit(mail("crab", "e"))
		census, err := whole.store.Census(t.Context())
		check(t, err)
		if census.Accepted != 5 || census.Live != 4 || census.Left["completed"] != 1 || !census.Conserved() {
			t.Errorf("after calls that raised at %s of another partition: %+v", key, census)
		}
	}
}

// TestLibrariesAreBounded: those of releases that are gone do not stand in Redis for ever, and one in use that was deleted is loaded again.
func TestLibrariesAreBounded(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	const past = 40
	for i := range past {
		name := lua.LibraryPrefix + strconv.Itoa(i)
		check(t, client.FunctionLoad(t.Context(), "#!lua name="+name+"\nredis.register_function('"+name+"_f', function() return 1 end)").Err())
	}
	check(t, client.FunctionLoad(t.Context(), "#!lua name=theirs\nredis.register_function('theirs', function() return 1 end)").Err())
	y := newYardOn(t, client, "hg")
	y.admit(mail("acme", "a"))
	all, err := client.FunctionList(t.Context(), redis.FunctionListQuery{}).Result()
	check(t, err)
	names := map[string]bool{}
	for _, l := range all {
		names[l.Name] = true
	}
	own := strings.TrimSuffix(y.store.conn.Scripts["admit"]().Function, "_admit")
	if len(all) != 16+1 || !names["theirs"] || !names[own] {
		t.Errorf("%d libraries are left: %v", len(all), names)
	}
	check(t, client.FunctionDelete(t.Context(), own).Err())
	y.admit(mail("acme", "b"))
}
