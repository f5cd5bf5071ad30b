package redisstore

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestTextsArePackedOnceTheDataIsRaised: data of an older release stays as that reads it until its version is raised. Then the next call
// packs it, loses nothing, and leaves that release what makes its scripts break off.
func TestTextsArePackedOnceTheDataIsRaised(t *testing.T) {
	t.Parallel()
	client, config := redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)}
	state := keyspace.New(config.Prefix, 0).State()
	check(t, client.HSet(t.Context(), state, redisconn.DataField, redisconn.TextData).Err())
	s, err := openOnly(t.Context(), client, config)
	check(t, err)
	limits := &[admission.Levels]admission.Limit{admission.LevelTenant: {Tokens: 1, Per: time.Hour, Burst: 1000}}
	bucket := func(field string) string {
		return client.HGet(t.Context(), keyspace.New(config.Prefix, 0).Buckets("acme"), field).Val()
	}
	admit := func(id string) {
		t.Helper()
		job := mail("acme", id)
		verdicts, err := s.Admit(t.Context(), 0, []store.Candidate{{Job: &job, Class: 1, Limits: limits}})
		check(t, err)
		check(t, verdicts[0].Err())
	}
	pass := func(id string) {
		t.Helper()
		admit(id)
		leases, err := s.Read(t.Context(), "w", yardPool.ID(), 1, time.Second, false)
		check(t, err)
		_, _, err = s.Finish(t.Context(), yardPool.ID(), "w", []store.Finish{leases[0].Finish(store.Complete)})
		check(t, err)
	}
	_, err = s.Register(t.Context(), "w", yardPool, 1, time.Minute)
	check(t, err)
	pass("a")
	pass("b")
	texts := client.HGetAll(t.Context(), state).Val()
	if _, packed := texts[keyspace.CoreField]; packed || !strings.Contains(texts["q:mail"], "|") || texts["accepted"] != "2" || texts["left:completed"] != "2" || texts["en"] != "2" {
		t.Errorf("before the data is raised there are %v", texts)
	}
	if last := redisconn.Whole(texts["t"]); last == 0 || texts["seq"] != strconv.Itoa(4) { // A job and its tenant have one each.
		t.Errorf("before the data is raised t is %q, seq %q", texts["t"], texts["seq"])
	}
	if text := bucket(""); !strings.HasPrefix(text, "99800000") {
		t.Errorf("before the data is raised a bucket is %q", text)
	}

	check(t, client.HSet(t.Context(), state, redisconn.DataField, DataVersion).Err())
	before := keyspace.Unpacked(texts)
	pass("c")
	raw := client.HGetAll(t.Context(), state).Val()
	for _, field := range keyspace.Core[1:] {
		if text, there := raw[field]; there {
			t.Errorf("%s is still %q", field, text)
		}
	}
	if b, err := buckets.Parse(bucket("")); err != nil || bucket("")[0] >= '-' || b.Level/1_000_000 != 997 {
		t.Errorf("a bucket is still %q, %+v, %v", bucket(""), b, err)
	}
	if text := raw["q:mail"]; text[0] != 'Q' {
		t.Errorf("a queue is still %q", text)
	}
	if _, err := strconv.ParseFloat(raw["t"], 64); err == nil {
		t.Errorf("a release that knows no core goes on from t %q", raw["t"])
	}
	after := keyspace.Unpacked(raw)
	for field, by := range map[string]int64{"accepted": 1, "left:completed": 1, "en": 1, "seq": 2, "gen": 0, "dw": 0, "step": 0} {
		if was, is := redisconn.Whole(before[field]), redisconn.Whole(after[field]); is != was+by {
			t.Errorf("%s was %d and is %d", field, was, is)
		}
	}
	for _, clock := range []string{"t", "bt", "dc"} {
		if redisconn.Whole(after[clock]) <= redisconn.Whole(before[clock]) {
			t.Errorf("%s was %s and is %s", clock, before[clock], after[clock])
		}
	}
	if verdicts, err := s.Admit(t.Context(), 0, []store.Candidate{{Job: new(mail("acme", "a")), Class: 1, Limits: limits}}); err != nil || verdicts[0].Decision != admission.Duplicate {
		t.Errorf("an id that ended before: %v, %v", verdicts, err)
	}
	if census, err := s.Census(t.Context()); err != nil || !census.Conserved() || census.Accepted != 3 {
		t.Errorf("%+v, %v", census, err)
	}
}

// TestAPartitionIsPackedFromItsFirstCall, and one that has lost its core is not begun anew.
func TestAPartitionIsPackedFromItsFirstCall(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	state := y.store.conn.Partition.State()
	y.register(1)
	first := y.client.HGetAll(t.Context(), state).Val()
	if len(first[keyspace.CoreField]) != 8*len(keyspace.Core) || first["bt"] != "" {
		t.Errorf("the first call left %q", first)
	}
	check(t, y.client.HDel(t.Context(), state, keyspace.CoreField).Err())
	lost := y.client.HGetAll(t.Context(), state).Val()
	job := store.Candidate{Job: new(mail("acme", "a")), Class: 1, Limits: &[admission.Levels]admission.Limit{}}
	if verdicts, err := y.store.Admit(t.Context(), 0, []store.Candidate{job}); err == nil {
		t.Errorf("where the core is lost: %+v", verdicts)
	}
	if now := y.client.HGetAll(t.Context(), state).Val(); !maps.Equal(now, lost) {
		t.Errorf("there was %v, and is %v", lost, now)
	}
}

// TestAClassThatIsNewToAQueueBeginsAtNothing: the queue's packed field has not its numbers yet.
func TestAClassThatIsNewToAQueueBeginsAtNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.admit(mail("acme", "a"))
	state := y.store.conn.Partition.State()
	field := y.client.HGet(t.Context(), state, "q:mail").Val()
	numbers := strings.Split(keyspace.QueueText(field), "|")
	if len(numbers) != 10 || field[:1] != "Q" {
		t.Fatalf("a queue of three classes has %q", numbers)
	}
	check(t, y.client.HSet(t.Context(), state, "q:mail", field[:len(field)-2*16]).Err()) // As under a policy of one class.
	y.admit(mail("acme", "b"))
	field = y.client.HGet(t.Context(), state, "q:mail").Val()
	if numbers = strings.Split(keyspace.QueueText(field), "|"); strings.Join(numbers[4:], "|") != "0|0|0|1|0|0" {
		t.Errorf("then V and waiting jobs of the classes are %v", numbers[4:])
	}
}
