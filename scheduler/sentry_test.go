package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// watchedBy has a policy with anomalies, or without them, in force.
func watchedBy(t *testing.T, s store.Deployment, rules *policy.AnomalyRules) {
	t.Helper()
	p := policy.Unlimited()
	p.Anomalies = rules
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
}

// hour writes counts of the last hour as processes store them: acme and the queue mail have 50 a minute, and in its last three minutes
// acme has ten times as many, and mail none, if anybody counted queues in these; early had ten times as many twenty minutes ago.
func hour(t *testing.T, client redis.UniversalClient, s store.Deployment, counted bool) {
	t.Helper()
	keys := redisstore.KeysOf(s.Partitions()[0])
	now, err := s.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pipe := client.Pipeline()
	for ago := range int64(60) {
		minute, acme := now.Unix()/60-ago, "50:0:50:0"
		if ago <= 3 {
			acme = "400:100:500:0"
		}
		switch {
		case ago <= 3 && counted:
			pipe.HSet(t.Context(), keys.Watched(minute), "watched", 1)
		case ago > 3:
			pipe.HSet(t.Context(), keys.Watched(minute), "a:mail", 40, "r:mail", 10)
		}
		early := "50:0:50:0"
		if ago >= 20 && ago < 23 {
			early = "500:0:500:0"
		}
		pipe.HSet(t.Context(), keys.Counts(minute), "acme", acme, "acme:mail", acme, "early", early, "global", "5000:0:5000:0")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// oddOnes waits for anomalies, and returns them by kind, whose and name.
func oddOnes(t *testing.T, s store.Deployment, n int) (names []string) {
	t.Helper()
	var of store.Stretch[store.Anomaly]
	await(t, "anomalies", func() bool {
		var err error
		if of, err = s.AnomaliesAfter(t.Context(), "", 100); err != nil {
			t.Fatal(err)
		}
		return len(of.Entries) >= n
	})
	for _, a := range of.Entries {
		names = append(names, a.Kind+" "+a.Of+" "+a.Name)
	}
	slices.Sort(names)
	return names
}

// TestRatesThatAreNotUsualAreTold: of three partitions, by one of two schedulers, once each, though each looks at the hour before; the other
// one goes on when the first ends, and tells none again.
func TestRatesThatAreNotUsualAreTold(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := open(t, client)
	watchedBy(t, s, &policy.AnomalyRules{})
	hour(t, client, s, true)
	log := &logs{}
	stop := run(t, s, scheduler.Config{TimerLease: handOver, Logger: log.logger()})
	want := []string{"refusal_surge tenant acme", "silence queue mail", "surge tenant acme"}
	if got := oddOnes(t, s, len(want)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if text := log.String(); !strings.Contains(text, `"kind":"surge","of":"tenant","name":"acme","rate":500,"usual":50`) {
		t.Errorf("the log says %s", text)
	}
	stop()
	other := &logs{}
	run(t, s, scheduler.Config{TimerLease: handOver, Logger: other.logger()})
	await(t, "the other one finds them, too", func() bool { return strings.Count(other.String(), "rate is not usual") == len(want) })
	if got := oddOnes(t, s, len(want)); !slices.Equal(got, want) {
		t.Errorf("after another begins: %q, want %q", got, want)
	}
}

// TestQueuesThatNobodyCountedAreNotSilent: as when the policy did not have rates watched for some minutes.
func TestQueuesThatNobodyCountedAreNotSilent(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := open(t, client)
	watchedBy(t, s, &policy.AnomalyRules{})
	hour(t, client, s, false)
	run(t, s, scheduler.Config{TimerLease: handOver})
	if got, want := oddOnes(t, s, 2), []string{"refusal_surge tenant acme", "surge tenant acme"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNothingIsWatchedUnlessThePolicySaysSo, and no more when it ceases to.
func TestNothingIsWatchedUnlessThePolicySaysSo(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]*policy.AnomalyRules{{nil}, {{}, nil}} {
		client := redistest.Shared(t).Client(t)
		s := open(t, client)
		for _, r := range rules {
			watchedBy(t, s, r)
		}
		hour(t, client, s, true)
		promotion, err := s.Partitions()[0].Promote(t.Context(), "nobody", time.Millisecond)
		if err != nil || promotion.Adaptive != 0 {
			t.Errorf("a scheduler is told to look by version %d, %v", promotion.Adaptive, err)
		}
	}
}

// TestOnAnomalyIsToldInOrder, again what it did not take note of, and after a restart what is new alone.
func TestOnAnomalyIsToldInOrder(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := open(t, client)
	watchedBy(t, s, &policy.AnomalyRules{})
	note := func(name string) {
		t.Helper()
		if kept, err := s.NoteAnomalies(t.Context(), []store.Anomaly{{Kind: "surge", Of: "tenant", Name: name}}); err != nil || kept != 1 {
			t.Fatal(kept, err)
		}
	}
	note("before")
	var mu sync.Mutex
	var told []string
	heard := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told)
	}
	config := scheduler.Config{TimerLease: handOver, OnAnomaly: func(_ context.Context, a scheduler.Anomaly) error {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, a.Name)
		if a.Name == "b" && len(told) == 2 {
			return errors.New("not now")
		}
		return nil
	}}
	stop := run(t, s, config)
	place := func() string {
		at, err := s.Partitions()[0].EventsFollowed(t.Context(), "on_anomaly")
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	await(t, "a follower", func() bool { return place() != "" })
	for _, name := range []string{"a", "b", "c"} {
		note(name)
	}
	of, err := s.AnomaliesAfter(t.Context(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "all are told", func() bool { return place() == of.Position })
	stop()
	note("d")
	run(t, s, config)
	await(t, "the next", func() bool { return len(heard()) == 5 })
	if want := []string{"a", "b", "b", "c", "d"}; !slices.Equal(heard(), want) {
		t.Errorf("told %q, want %q", heard(), want)
	}
}

// values has each of the last minutes have two users, of whom one asks for more than the other.
func values(t *testing.T, client redis.UniversalClient, s store.Deployment) {
	t.Helper()
	now, err := s.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for ago := range int64(4) {
		key := redisstore.KeysOf(s.Partitions()[0]).Values(now.Unix()/60 - ago)
		if err := client.HSet(t.Context(), key, "+user:near", "55:0:55:1", "+user:far", "20:0:20:1").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhoIsNearALimitIsTold, once, with the figures, and only where the policy says of which part.
func TestWhoIsNearALimitIsTold(t *testing.T) {
	t.Parallel()
	for _, warn := range []float64{0, 0.8} {
		client := redistest.Shared(t).Client(t)
		s := open(t, client)
		p := policy.Unlimited()
		p.Anomalies = &policy.AnomalyRules{WarnAt: warn}
		limit := admission.PerSecond(1)
		p.Tenants = map[string]policy.Tenant{"early": {Limit: &limit}}
		p.Dimensions = map[string]policy.DimensionRules{"user": {Limit: limit}}
		if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
		hour(t, client, s, true) // early has 50 a minute.
		values(t, client, s)
		log := &logs{}
		run(t, s, scheduler.Config{TimerLease: handOver, Logger: log.logger()})
		want := []string{"refusal_surge tenant acme", "silence queue mail", "surge tenant acme"}
		if warn > 0 {
			want = append([]string{"near_limit scope +user:near", "near_limit scope early"}, want...)
		}
		if got := oddOnes(t, s, len(want)); !slices.Equal(got, want) {
			t.Errorf("warned at %g: %q, want %q", warn, got, want)
		}
		if text := log.String(); warn > 0 != strings.Contains(text, `"kind":"near_limit","of":"scope","name":"early","rate":50,"usual":60,"score":0.83`) {
			t.Errorf("warned at %g the log says %s", warn, text)
		}
	}
}
