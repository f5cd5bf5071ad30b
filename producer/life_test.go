package producer_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// ways are the calls by which one job may be enqueued.
var ways = map[string]func(context.Context, *producer.Producer, admission.Job) (admission.Verdict, error){
	"Enqueue": func(ctx context.Context, p *producer.Producer, j admission.Job) (admission.Verdict, error) {
		return p.Enqueue(ctx, j)
	},
	"EnqueueBatch": func(ctx context.Context, p *producer.Producer, j admission.Job) (admission.Verdict, error) {
		results, _ := p.EnqueueBatch(ctx, []admission.Job{j})
		return results[0].Verdict, results[0].Err
	},
	"EnqueueWait": func(ctx context.Context, p *producer.Producer, j admission.Job) (admission.Verdict, error) {
		return p.EnqueueWait(ctx, j)
	},
}

func TestATimeOfItsOwnAndAUniqueKeyTravelByEveryCall(t *testing.T) {
	t.Parallel()
	for name, enqueue := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Shared(t).Client(t)
			store := open(t, client)
			p := newProducer(t, store, producer.Config{})
			later := func(id string) time.Time {
				score, err := client.ZScore(t.Context(), redisstore.Keys(store).Later(), "acme:"+id).Result()
				if err != nil {
					t.Fatalf("%s: %v", id, err)
				}
				return time.UnixMicro(int64(score))
			}
			at := job("acme")
			at.ID, at.RunAt, at.Unique = "at", time.Now().Add(time.Hour).Truncate(time.Microsecond), admission.Unique{Key: "k", For: time.Minute}
			verdict, err := enqueue(t.Context(), p, at)
			if err != nil || verdict.Place != admission.PlaceLater || verdict.EstimatedWait < 59*time.Minute || !later("at").Equal(at.RunAt) {
				t.Fatalf("got %+v, %v, to start at %s", verdict, err, later("at"))
			}
			if verdict, err := enqueue(t.Context(), p, at); err != nil || verdict.Decision != admission.Duplicate {
				t.Errorf("the same id again: %+v, %v", verdict, err)
			}
			after := job("acme")
			after.ID, after.Delay = "after", 2*time.Hour
			began := time.Now()
			verdict, err = enqueue(t.Context(), p, after)
			if due := later("after"); err != nil || verdict.Place != admission.PlaceLater || due.Before(began.Add(after.Delay)) || due.After(time.Now().Add(after.Delay)) {
				t.Errorf("got %+v, %v, to start at %s", verdict, err, due)
			}
			rival := job("acme")
			rival.ID, rival.Unique = "rival", admission.Unique{Key: "k"}
			began = time.Now()
			verdict, err = enqueue(t.Context(), p, rival)
			if !errors.Is(err, admission.ErrNotUnique) || verdict.Detail != "at" || verdict.RetryAfter <= 0 || verdict.RetryAfter > time.Minute || verdict.ID != "rival" {
				t.Errorf("got %+v, %v", verdict, err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s to hear that the key is held", took)
			}
			rival.Tenant = "beta" // Keys are the tenant's own.
			if _, err := enqueue(t.Context(), p, rival); err != nil {
				t.Error(err)
			}
			past := job("acme")
			past.RunAt = time.Now().Add(-time.Hour)
			if verdict, err := enqueue(t.Context(), p, past); err != nil || verdict.Place == admission.PlaceLater {
				t.Errorf("a time that is over: %+v, %v", verdict, err)
			}
		})
	}
}

func TestBadTimesAndKeysAreOneClearError(t *testing.T) {
	t.Parallel()
	p := newProducer(t, open(t, redistest.Shared(t).Client(t)), producer.Config{})
	noon := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		change func(*admission.Job)
		text   string
	}{
		{"negative delay", func(j *admission.Job) { j.Delay = -time.Second }, "invalid delay -1s: allowed is 0 to 8784h0m0s"},
		{"delay of years", func(j *admission.Job) { j.Delay = admission.MaxDelay + 1 }, "invalid delay 8784h0m0.000000001s: allowed is 0 to 8784h0m0s"},
		{"both times", func(j *admission.Job) { j.Delay, j.RunAt = time.Second, noon }, "invalid run at 2030-01-02T12:00:00Z: allowed is nothing beside a delay: one of the two"},
		{"start after the deadline", func(j *admission.Job) { j.RunAt, j.Deadline = noon, noon.Add(-time.Second) }, "invalid run at 2030-01-02T12:00:00Z: allowed is a time before the deadline, 2030-01-02T11:59:59Z"},
		{"start in the dark ages", func(j *admission.Job) { j.RunAt = time.Unix(1, 0) }, "invalid run at 1970-01-01T00:00:01Z: allowed is a time from 2000 to 2090"},
		{"unique key with a blank", func(j *admission.Job) { j.Unique.Key = "a b" }, `invalid unique key "a b": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]`},
		{"unique key too long", func(j *admission.Job) { j.Unique.Key = strings.Repeat("k", 129) }, `invalid unique key "` + strings.Repeat("k", 32) + `"... (129 bytes): allowed is 1-128 bytes of [A-Za-z0-9._:@/-]`},
		{"unique without a key", func(j *admission.Job) { j.Unique.For = time.Hour }, `invalid unique key "": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]`},
		{"unique for too short", func(j *admission.Job) { j.Unique = admission.Unique{Key: "k", For: time.Microsecond} }, "invalid unique for 1µs: allowed is 1ms to 720h0m0s, or 0 for 24h0m0s"},
		{"unique for too long", func(j *admission.Job) { j.Unique = admission.Unique{Key: "k", For: 31 * 24 * time.Hour} }, "invalid unique for 744h0m0s: allowed is 1ms to 720h0m0s, or 0 for 24h0m0s"},
		{"unknown release", func(j *admission.Job) { j.Unique = admission.Unique{Key: "k", Release: "never"} }, `invalid unique release "never": allowed is end, start or expiry`},
		{"backoff that is none", func(j *admission.Job) { j.Headers = map[string]string{admission.HeaderBackoff: "soon"} }, `invalid header headgate-backoff "soon": allowed is one or two durations such as "30s" or "1s 10m", 1ms to 24h0m0s, the longer one last`},
		{"all at once", func(j *admission.Job) { j.Delay, j.Unique.Key = -1, "é" }, "invalid delay -1ns: allowed is 0 to 8784h0m0s\ninvalid unique key \"é\": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]"},
	} {
		for name, enqueue := range ways {
			j := job("acme")
			c.change(&j)
			if _, err := enqueue(t.Context(), p, j); !errors.Is(err, admission.ErrInvalid) || err.Error() != c.text {
				t.Errorf("%s by %s: %v", c.name, name, err)
			}
		}
	}
}

// durations are what differs from run to run in the texts of refusals.
var durations = regexp.MustCompile(`\b[0-9.]+(h|m|s|ms|µs)([0-9.]+(m|s))*\b`)

func TestRefusalsOfTheStoreReadAsTheyShould(t *testing.T) {
	t.Parallel()
	hourly := admission.Limit{Tokens: 1, Per: time.Hour, Burst: 1}
	free := producer.Config{Policy: unlimited()}
	enter := func(t *testing.T, p *producer.Producer, change func(*admission.Job)) {
		t.Helper()
		j := job("acme")
		change(&j)
		if _, err := p.Enqueue(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		config  redisstore.Config
		policy  producer.Config
		before  func(t *testing.T, s store.Deployment, p *producer.Producer)
		change  func(*admission.Job)
		kind    error
		text    string
		atLeast time.Duration // to wait
		atMost  time.Duration
	}{
		{
			name: "limited", policy: producer.Config{Policy: limited(hourly)},
			before: func(t *testing.T, _ store.Deployment, p *producer.Producer) {
				t.Helper()
				enter(t, p, func(*admission.Job) {})
			},
			kind: admission.ErrLimited, text: "job refused: scope acme holds 0 tokens, retry after D", atLeast: 59 * time.Minute, atMost: time.Hour,
		},
		{
			name: "suspended for a time, with a reason", policy: free,
			before: func(t *testing.T, s store.Deployment, _ *producer.Producer) {
				t.Helper()
				if err := s.Suspend(t.Context(), store.TenantGate("acme"), time.Minute, store.Intervention{Reason: "moving house"}); err != nil {
					t.Fatal(err)
				}
			},
			kind: admission.ErrPaused, text: "job refused: enqueueing is suspended (moving house), retry after D", atLeast: 30 * time.Second, atMost: time.Minute,
		},
		{
			name: "suspended until further notice, without", policy: free,
			before: func(t *testing.T, s store.Deployment, _ *producer.Producer) {
				t.Helper()
				if err := s.Suspend(t.Context(), store.TenantQueueGate("acme", "mail"), 0, store.Intervention{}); err != nil {
					t.Fatal(err)
				}
			},
			kind: admission.ErrPaused, text: "job refused: enqueueing is suspended (no reason given), retry after D", atLeast: time.Second, atMost: time.Second,
		},
		{
			name: "unique key held", policy: free,
			before: func(t *testing.T, _ store.Deployment, p *producer.Producer) {
				t.Helper()
				enter(t, p, func(j *admission.Job) { j.ID, j.Unique = "holder", admission.Unique{Key: "k"} })
			},
			change: func(j *admission.Job) { j.Unique.Key = "k" },
			kind:   admission.ErrNotUnique, text: "job refused: job holder holds its unique key, for up to D", atLeast: 23 * time.Hour, atMost: 24 * time.Hour,
		},
		{
			name: "as many buckets as a tenant may have", config: redisstore.Config{BucketCap: 4},
			policy: producer.Config{Policy: fourQueues(hourly)},
			before: func(t *testing.T, _ store.Deployment, p *producer.Producer) {
				t.Helper()
				for i := range 3 { // Beside the fields of buckets there is one of the hash itself.
					enter(t, p, func(j *admission.Job) { j.Queue = fmt.Sprint("q", i) })
				}
			},
			change: func(j *admission.Job) { j.Queue = "q3" },
			kind:   admission.ErrBucketsFull, text: "job refused: tenant has its largest number of buckets, scope acme:q3 would be one more", atLeast: time.Second, atMost: time.Second,
		},
		{
			name: "as many ended ids as are kept", config: redisstore.Config{EndedCap: 1}, policy: free,
			before: func(t *testing.T, s store.Deployment, p *producer.Producer) {
				t.Helper()
				enter(t, p, func(j *admission.Job) { j.ID = "gone" })
				if _, _, err := s.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "gone"}, store.Intervention{}); err != nil {
					t.Fatal(err)
				}
			},
			kind: admission.ErrDedupFull, text: "job refused: the window of ended job ids is full, retry after D", atLeast: time.Second, atMost: time.Second,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.config.Prefix = redistest.Prefix(t)
			s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), c.config)
			if err != nil {
				t.Fatal(err)
			}
			p := newProducer(t, s, c.policy)
			c.before(t, s, p)
			j := job("acme")
			if c.change != nil {
				c.change(&j)
			}
			for _, name := range []string{"Enqueue", "EnqueueBatch"} {
				verdict, err := ways[name](t.Context(), p, j)
				if !errors.Is(err, c.kind) || !errors.Is(err, admission.ErrRefused) || durations.ReplaceAllString(err.Error(), "D") != c.text {
					t.Errorf("%s: got %v", name, err)
				}
				if verdict.RetryAfter < c.atLeast || verdict.RetryAfter > c.atMost || verdict.Permanent() {
					t.Errorf("%s: got %+v", name, verdict)
				}
			}
		})
	}
}

// fourQueues limits nothing but one tenant in each of four queues.
func fourQueues(limit admission.Limit) *policy.Policy {
	p := policy.Unlimited()
	p.QueueLimits = map[admission.Scope]admission.Limit{}
	for i := range 4 {
		p.QueueLimits[admission.Scope(fmt.Sprint("acme:q", i))] = limit
	}
	return &p
}

func TestEnqueueWaitWaitsOutASuspension(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]time.Duration{"for a time": 300 * time.Millisecond, "until resumed": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, redistest.Shared(t).Client(t))
			p := newProducer(t, s, producer.Config{})
			gate := store.QueueGate("mail")
			began := time.Now()
			if err := s.Suspend(t.Context(), gate, until, store.Intervention{Reason: "moving house"}); err != nil {
				t.Fatal(err)
			}
			if until == 0 {
				resume := time.AfterFunc(300*time.Millisecond, func() {
					if _, err := s.Resume(t.Context(), gate, store.Intervention{}); err != nil {
						t.Error(err)
					}
				})
				defer resume.Stop()
			}
			verdict, err := p.EnqueueWait(t.Context(), job("acme"))
			if took := time.Since(began); err != nil || verdict.Decision != admission.Admitted || took < 250*time.Millisecond {
				t.Errorf("got %+v, %v after %s", verdict, err, took)
			}
		})
	}
}
