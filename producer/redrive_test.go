package producer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// letters makes dead letters of jobs: a worker takes each and gives it up. It leaves no worker behind.
func letters(t *testing.T, s store.Deployment, p *producer.Producer, jobs ...admission.Job) []admission.Key {
	t.Helper()
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	_, err := s.Partitions()[0].Register(t.Context(), "w", pool, len(jobs), time.Minute)
	must(t, err)
	var keys []admission.Key
	for _, j := range jobs {
		verdict, err := p.Enqueue(t.Context(), j)
		must(t, err)
		keys = append(keys, admission.Key{Tenant: j.Tenant, ID: verdict.ID})
	}
	leases, err := s.Partitions()[0].Read(t.Context(), "w", pool.ID(), len(jobs), -1, false)
	must(t, err)
	var ends []store.Finish
	for _, l := range leases {
		ends = append(ends, store.Finish{
			Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: store.Kill, Reason: "discarded", Text: "no",
		})
	}
	_, _, err = s.Partitions()[0].Finish(t.Context(), pool.ID(), "w", ends)
	must(t, err)
	_, err = s.Partitions()[0].Reclaim(t.Context(), "w")
	must(t, err)
	return keys
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func place(t *testing.T, store store.Deployment, key admission.Key) admission.Place {
	t.Helper()
	sight, err := store.Look(t.Context(), key)
	must(t, err)
	return sight.Place
}

func TestRedriveBringsLettersBack(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, store, producer.Config{Policy: unlimited()})
	large := job("acme")
	large.ID, large.Payload, large.Headers = "large", []byte(strings.Repeat("x", 10_000)), map[string]string{"trace": "1"}
	small := job("bakery")
	small.Priority = admission.High
	keys := letters(t, store, p, large, small)

	results, err := p.Redrive(t.Context(), keys...)
	must(t, err)
	for i, r := range results {
		sight, err := store.Look(t.Context(), r.Key)
		must(t, err)
		if r.Key != keys[i] || r.Verdict.Decision != admission.Admitted || sight.Place != admission.PlaceWaiting || len(sight.History) != 1 {
			t.Errorf("%+v: %+v", r, sight)
		}
	}
	if got, err := store.Payload(t.Context(), keys[0]); err != nil || string(got) != string(large.Payload) {
		t.Errorf("payload of %d bytes, %v", len(got), err)
	}
	if sight, err := store.Look(t.Context(), keys[1]); err != nil || sight.Record.Job.Priority != admission.High {
		t.Errorf("%+v, %v", sight, err)
	}
	if c := census(t, store); !c.Conserved() || c.Dead != 0 || c.Waiting != 2 || c.Accepted != 2 {
		t.Errorf("%+v", c)
	}
	results, err = p.Redrive(t.Context(), keys...)
	if !errors.Is(err, admission.ErrNotDead) || len(results) != 2 || !errors.Is(results[1].Err, admission.ErrNotDead) {
		t.Errorf("twice: %+v, %v", results, err)
	}
}

func TestRedriveIsCharged(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, s, producer.Config{Policy: limited(admission.Limit{Tokens: 3, Per: time.Hour, Burst: 3})})
	keys := letters(t, s, p, job("acme"), job("acme"))
	results, err := p.Redrive(t.Context(), keys...)
	if !errors.Is(err, admission.ErrLimited) || !strings.HasPrefix(err.Error(), "1 of 2 dead letters were not redriven, the first of them: job refused: scope acme holds 0 tokens") {
		t.Fatalf("%v", err)
	}
	if results[0].Err != nil || !errors.Is(results[1].Err, admission.ErrLimited) || results[1].Verdict.RetryAfter == 0 || place(t, s, keys[1]) != store.PlaceDead {
		t.Errorf("%+v", results)
	}
	if _, err := p.RedriveWith(t.Context(), producer.RedriveOptions{WithoutLimits: true}, keys[1]); err != nil || place(t, s, keys[1]) != admission.PlaceWaiting {
		t.Errorf("without limits: %v", err)
	}
}

func TestRedriveDropsADeadlineThatPassed(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, s, producer.Config{Policy: unlimited()})
	soon, late := job("acme"), job("acme")
	soon.Deadline, late.Deadline = time.Now().Add(time.Second), time.Now().Add(time.Hour)
	verdict, err := p.Enqueue(t.Context(), soon)
	must(t, err)
	keys := []admission.Key{{Tenant: soon.Tenant, ID: verdict.ID}}
	await(t, "it expires", func() bool {
		_, err := s.Partitions()[0].Promote(t.Context(), "s", time.Second)
		return err == nil && place(t, s, keys[0]) == store.PlaceDead
	})
	keys = append(keys, letters(t, s, p, late)...)
	results, err := p.Redrive(t.Context(), keys[0])
	if !errors.Is(err, admission.ErrDeadlinePassed) || !results[0].Verdict.Permanent() || place(t, s, keys[0]) != store.PlaceDead {
		t.Errorf("%+v, %v", results, err)
	}
	_, err = p.RedriveWith(t.Context(), producer.RedriveOptions{DropDeadline: true}, keys...)
	must(t, err)
	for i, dated := range []bool{false, true} {
		sight, err := s.Look(t.Context(), keys[i])
		if err != nil || sight.Record.Job.Deadline.IsZero() == dated {
			t.Errorf("deadline %s, %v", sight.Record.Job.Deadline, err)
		}
	}
}

func TestRedriveFollowsTheStoredPolicy(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, store, producer.Config{})
	keys := letters(t, store, p, job("acme"))
	next := policy.Unlimited()
	next.Version = 1
	put(t, store, next) // The producer has not heard of it.
	if _, err := p.Redrive(t.Context(), keys...); err != nil {
		t.Error(err)
	}
}

func TestRedriveRefusesBadCalls(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, store, producer.Config{Policy: unlimited()})
	live, err := p.Enqueue(t.Context(), job("acme"))
	must(t, err)
	for _, key := range []admission.Key{{Tenant: "acme", ID: "none"}, {Tenant: "acme", ID: live.ID}} {
		results, err := p.Redrive(t.Context(), key)
		if !errors.Is(err, admission.ErrNotDead) || len(results) != 1 || !errors.Is(results[0].Err, admission.ErrNotDead) {
			t.Errorf("%s: %+v, %v", key, results, err)
		}
	}
	for want, keys := range map[string][]admission.Key{
		"invalid keys 0: allowed is 1 to 64 dead letters a call":  nil,
		"invalid keys 65: allowed is 1 to 64 dead letters a call": make([]admission.Key, 65),
		`invalid tenant "a:b"`: {{Tenant: "a:b", ID: "x"}},
		`invalid id ""`:        {{Tenant: "acme"}},
	} {
		if results, err := p.Redrive(t.Context(), keys...); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) || results != nil {
			t.Errorf("%v", err)
		}
	}
}

// TestRedriveAfterALostReplyIsOne: the call is sent again, and the letter is redriven and charged once, whether it waits, has
// ended, or has died once more by then.
func TestRedriveAfterALostReplyIsOne(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]store.Outcome{"waits": "", "has ended": store.Complete, "has died again": store.Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			prefix := redistest.Prefix(t)
			s := openAs(t, server.Client(t), prefix)
			config := producer.Config{Policy: limited(admission.Limit{Tokens: 3, Per: 24 * time.Hour, Burst: 3}), Timeout: 10 * time.Second}
			near := newProducer(t, s, config)
			keys := letters(t, s, near, job("acme"))
			proxy := redistest.NewProxy(t, server.Addr())
			far := newProducer(t, openAs(t, proxy.Client(t), prefix), config)
			lost := 0
			proxy.Decide(func(c redistest.Command) redistest.Action {
				if lost++; !isScript(c) || lost > 10 { // Of the first calls all replies are lost.
					return redistest.Action{}
				}
				return redistest.Action{Cut: redistest.CutAfter, OnCut: func() {
					if meanwhile != "" {
						endNext(t, s, meanwhile)
					}
				}}
			})
			results, err := far.Redrive(t.Context(), keys...)
			must(t, err)
			if results[0].Verdict.Decision != admission.Duplicate {
				t.Errorf("%+v", results)
			}
			c := census(t, s)
			if dead := meanwhile == store.Kill; c.Accepted != 1 || !c.Conserved() || (c.Dead == 1) != dead || (c.Left["completed"] == 1) != (meanwhile == store.Complete) {
				t.Errorf("%+v", c)
			}
			j := job("acme")
			j.Cost = 2
			if verdict, err := near.Enqueue(t.Context(), j); !errors.Is(err, admission.ErrLimited) || verdict.TokensLeft != 1 {
				t.Errorf("%d tokens are left, want 1: %v", verdict.TokensLeft, err)
			}
		})
	}
}

// endNext ends the job that waits, if one does.
func endNext(t *testing.T, s store.Deployment, outcome store.Outcome) {
	t.Helper()
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	_, err := s.Partitions()[0].Register(t.Context(), "w", pool, 1, time.Minute)
	if err != nil {
		t.Error(err)
	}
	leases, err := s.Partitions()[0].Read(t.Context(), "w", pool.ID(), 1, -1, false)
	if err != nil {
		t.Error(err)
	}
	for _, l := range leases {
		f := store.Finish{Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: outcome, Reason: "discarded"}
		if _, _, err := s.Partitions()[0].Finish(t.Context(), pool.ID(), "w", []store.Finish{f}); err != nil {
			t.Error(err)
		}
	}
}

// TestRedriveBeginsTheLongestWaitAnew: the deadline that a queue gave its job is not the job's own.
func TestRedriveBeginsTheLongestWaitAnew(t *testing.T) {
	t.Parallel()
	const wait = 50 * time.Millisecond
	s := open(t, redistest.Shared(t).Client(t))
	must(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Queues: []store.QueueSettings{{
		Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxWait: wait,
	}}}))
	fixed := policy.Unlimited()
	fixed.Version = 1
	p := newProducer(t, s, producer.Config{Policy: &fixed})
	verdict, err := p.Enqueue(t.Context(), job("acme"))
	must(t, err)
	key := admission.Key{Tenant: "acme", ID: verdict.ID}
	for place(t, s, key) != store.PlaceDead {
		_, err := s.Partitions()[0].Promote(t.Context(), "s", time.Second)
		must(t, err)
	}
	before, err := s.Look(t.Context(), key)
	must(t, err)
	_, err = p.Redrive(t.Context(), key)
	must(t, err)
	after, err := s.Look(t.Context(), key)
	must(t, err)
	if before.Reason != "queue_timeout" || !after.Record.Timed || after.Record.Job.Deadline.Sub(after.Record.Arrival) != wait {
		t.Errorf("it died of %s, and waits until %s, %s after it came back", before.Reason, after.Record.Job.Deadline, after.Record.Job.Deadline.Sub(after.Record.Arrival))
	}
}

// TestRedriveWithoutAnAnswer: a letter whose answer was lost is neither dead nor surely back.
func TestRedriveWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	store := openAs(t, server.Client(t), prefix)
	keys := letters(t, store, newProducer(t, store, producer.Config{Policy: unlimited()}), job("acme"))
	proxy := redistest.NewProxy(t, server.Addr())
	far := newProducer(t, openAs(t, proxy.Client(t), prefix), producer.Config{Policy: unlimited(), Timeout: time.Second})
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !isScript(c) {
			return redistest.Action{}
		}
		return redistest.Action{Cut: redistest.CutAfter}
	})
	results, err := far.Redrive(t.Context(), keys...)
	if !errors.Is(err, admission.ErrOutcomeUnknown) || errors.Is(err, admission.ErrUnavailable) || !errors.Is(results[0].Err, admission.ErrOutcomeUnknown) {
		t.Errorf("%+v, %v", results, err)
	}
	proxy.Decide(nil)
}
