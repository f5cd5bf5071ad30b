package explain_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

var update = flag.Bool("update", false, "rewrite the texts in testdata")

func TestMain(m *testing.M) { redistest.Main(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// stage is a store of a test's own.
type stage struct {
	t        *testing.T
	store    store.Deployment
	producer *producer.Producer
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	p, err := producer.New(s, producer.Config{})
	must(t, err)
	return &stage{t, s, p}
}

// put stores a policy, by the author ada for a reason.
func (s *stage) put(document, reason string) {
	s.t.Helper()
	p, err := policy.Unmarshal([]byte(document))
	must(s.t, err)
	_, err = rollout.Put(s.t.Context(), s.store, p, rollout.Edit{Author: "ada", Reason: reason, Expected: rollout.AnyVersion})
	must(s.t, err)
}

// enqueue enqueues a job of tenant acme in queue mail that calls smtp.
func (s *stage) enqueue(id string, change ...func(*admission.Job)) {
	s.t.Helper()
	j := admission.NewJob("acme", "mail", "welcome", nil)
	j.ID, j.Downstream = id, "smtp"
	for _, do := range change {
		do(&j)
	}
	_, err := s.producer.Enqueue(s.t.Context(), j)
	must(s.t, err)
}

var mailPool = store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}

// work registers a worker with so many slots that takes as many of n jobs and ends them with an outcome; those of "" it
// keeps.
func (s *stage) work(slots, n int, outcome store.Outcome) {
	s.t.Helper()
	ctx := s.t.Context()
	_, err := s.store.Partitions()[0].Register(ctx, "w1", mailPool, slots, time.Minute)
	must(s.t, err)
	if n == 0 {
		return
	}
	leases, err := s.store.Partitions()[0].Read(ctx, "w1", mailPool.ID(), n, -1, false)
	must(s.t, err)
	for _, l := range leases {
		if outcome == "" {
			continue
		}
		text := "no such address"
		if outcome == store.Release {
			text = store.UnknownType + " " + l.Job.Type
		}
		_, _, err := s.store.Partitions()[0].Finish(ctx, mailPool.ID(), "w1", []store.Finish{{
			Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: outcome, Delay: time.Hour, Reason: "discarded", Text: text,
		}})
		must(s.t, err)
	}
}

// calls has a worker tell of calls of downstream smtp, of which the last so many failed.
func (s *stage) calls(counted breaker.Counts, streak uint64) {
	s.t.Helper()
	config, _ := breaker.Config{}.Complete()
	_, _, err := s.store.Partitions()[0].ReportOutcomes(s.t.Context(), store.Reporter{Name: "w"}, []store.Outcomes{{
		Downstream: "smtp", Config: config, Report: breaker.Report{Sequence: 1, Counts: counted, Streak: streak},
	}})
	must(s.t, err)
}

// slow is a policy by which no token comes back while a test runs.
const slow = `{"tiers":{"standard":{"limit":{"tokens":10,"per":"24h","burst":10}}}}`

// scenes bring about each reason; explain names what is explained then.
type scene struct {
	name    string
	explain []string // kind, name, kind, name…
	set     func(*stage)
}

var scenes = []scene{
	{"workers", []string{"job", "acme:b"}, func(s *stage) {
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"limits of each tenant", []string{"scope", "acme:mail:high", "scope", "acme:sms:high", "scope", "bolt:mail", "scope", "bolt:sms:low", "queue", "mail"}, func(s *stage) {
		const day = `{"tokens": 1, "per": "24h", "burst": %d}`
		s.put(fmt.Sprintf(`{"tenants": {"acme": {"tier": "gold"}},
			"tiers": {"standard": {"limit": {"enabled": false}}, "gold": {"limit": {"enabled": false}, "queues": {
				"mail": {"limit": `+day+`}, "*": {"priority_limits": {"high": `+day+`}}}}},
			"queues": {"mail": {"each_tenant": {"limit": `+day+`}}, "*": {"each_tenant": {"limit": `+day+`, "priority_limits": {"low": {"enabled": false}}}}}}`,
			5, 2, 3, 4), "by kind")
		s.enqueue("a", func(j *admission.Job) { j.Priority = admission.High })
	}},
	{"spilled by a tier", []string{"job", "acme:b"}, func(s *stage) {
		s.put(`{"tenants": {"acme": {"tier": "premium"}}, "tiers": {"standard": {"limit": {"enabled": false}},
			"premium": {"limit": {"enabled": false}, "queues": {"mail": {"overflow": {"policy": "spillover", "max_jobs": 1}}}}},
			"queues": {"mail": {"overflow": {"policy": "reject", "max_jobs": 9}}}}`, "small")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"turn", []string{"job", "acme:b", "job", "acme:c"}, func(s *stage) {
		s.put(`{"tenants":{"acme":{"priority_weights":{"medium":3}}}}`, "contract")
		s.work(1, 0, "")
		s.enqueue("a")
		s.enqueue("b", func(j *admission.Job) { j.Deadline = time.Now().Add(time.Hour) })
		s.enqueue("c")
	}},
	{"ready and running", []string{"job", "acme:a", "job", "acme:b"}, func(s *stage) {
		s.work(2, 0, "")
		s.enqueue("a")
		s.enqueue("b")
		s.work(2, 1, "")
	}},
	{"pauses", []string{"job", "acme:a", "tenant", "acme"}, func(s *stage) {
		s.put(slow, "slow")
		s.work(1, 0, "")
		for gate, reason := range map[store.GateName]string{
			store.QueueGate("mail"): "maintenance", store.TenantGate("acme"): "unpaid\x1b[2J bill", store.TenantQueueGate("acme", "mail"): "complaints",
		} {
			_, err := s.store.Pause(s.t.Context(), gate, time.Hour, store.Intervention{Reason: reason})
			must(s.t, err)
		}
		s.enqueue("a")
	}},
	{"paused downstream", []string{"job", "acme:a"}, func(s *stage) {
		s.work(1, 0, "")
		_, err := s.store.Pause(s.t.Context(), store.DownstreamGate("smtp"), time.Hour, store.Intervention{Author: "ada", Reason: "they move"})
		must(s.t, err)
		s.enqueue("a")
	}},
	{"cap of a tenant in a queue", []string{"job", "acme:b"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"max_running_per_tenant":9}},"max_running":{"acme:mail":1}}`, "fewer")
		s.work(5, 0, "")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"cap of a tier", []string{"job", "acme:b", "tenant", "acme"}, func(s *stage) {
		s.put(`{"tiers":{"standard":{"limit":{"enabled":false},"max_running":1}}}`, "fewer")
		s.work(5, 0, "")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"caps of all levels", []string{"job", "acme:b"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"max_running":1,"max_running_per_tenant":1}},"downstreams":{"smtp":{"max_running":1}}}`, "slow")
		s.work(5, 0, "")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"rate", []string{"job", "acme:b", "downstream", "smtp"}, func(s *stage) {
		s.put(`{"downstreams":{"smtp":{"dispatch":{"tokens":1,"per":"24h","burst":1},"max_parked":1000}},"tenants":{"acme":{"dispatch":{"tokens":1,"per":"24h","burst":5}}}}`, "their limit")
		s.work(5, 0, "")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"account", []string{"job", "acme:b", "job", "acme:d", "downstream", "smtp+ada", "downstream", "smtp"}, func(s *stage) {
		s.put(`{"downstreams":{"smtp":{"max_running":9},"smtp+*":{"max_running":1,"dispatch":{"tokens":5,"per":"24h","burst":5}},"smtp+own":{"dispatch":{"tokens":1,"per":"24h","burst":1},"max_running":3}}}`, "a quota each")
		s.work(5, 0, "")
		for id, account := range map[string]string{"a": "ada", "c": "own"} {
			s.enqueue(id, func(j *admission.Job) { j.Downstream = "smtp+" + account })
		}
		for id, account := range map[string]string{"b": "ada", "d": "own"} {
			s.enqueue(id, func(j *admission.Job) { j.Downstream = "smtp+" + account })
		}
	}},
	{"account of an ill service", []string{"job", "acme:a", "downstream", "smtp+ada"}, func(s *stage) {
		s.work(5, 0, "")
		_, err := s.store.ForceBreaker(s.t.Context(), "smtp", breaker.Open, time.Hour, store.Intervention{Author: "ada", Reason: "they move"})
		must(s.t, err)
		s.enqueue("a", func(j *admission.Job) { j.Downstream = "smtp+ada" })
	}},
	{"breaker", []string{"job", "acme:a", "downstream", "smtp", "downstream", "never"}, func(s *stage) {
		s.work(5, 0, "")
		_, err := s.store.ForceBreaker(s.t.Context(), "smtp", breaker.Open, time.Hour, store.Intervention{Author: "ada", Reason: "they move"})
		must(s.t, err)
		s.enqueue("a")
	}},
	{"pressure of a downstream", []string{"downstream", "smtp"}, func(s *stage) {
		s.calls(breaker.Counts{Successes: 11, Failures: 9, Slow: 4}, 3)
	}},
	{"later", []string{"job", "acme:a", "job", "acme:b"}, func(s *stage) {
		s.enqueue("b", func(j *admission.Job) { j.Downstream = "" })
		s.work(5, 1, store.Retry)
		s.enqueue("a", func(j *admission.Job) { j.Delay = time.Hour })
	}},
	{"unknown type", []string{"job", "acme:a"}, func(s *stage) {
		s.enqueue("a")
		s.work(1, 1, store.Release)
	}},
	{"spilled", []string{"job", "acme:b"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"overflow":{"policy":"spillover","max_jobs":1}}}}`, "small")
		s.enqueue("a")
		s.enqueue("b")
	}},
	{"longest wait", []string{"job", "acme:a"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"max_wait":"1h"}}}`, "fresh")
		s.enqueue("a")
	}},
	{"pressure", []string{"queue", "mail"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"pressure":{"target_wait":"5s","max_depth":10}}},"shedding":{"order":["low","medium"],"tiers":["basic","standard","premium"],"reserve":["high"],"at":{"HIGH":["low","medium:basic"]}}}`, "busy hours")
		_, err := s.store.Partitions()[0].Promote(s.t.Context(), "s", time.Minute)
		must(s.t, err)
		version, err := s.store.PolicyInForce(s.t.Context())
		must(s.t, err)
		_, err = s.store.Press(s.t.Context(), store.Press{
			Owner: "s", Version: version, Queue: "mail", Pressure: admission.Pressure{Level: admission.PressureHigh, Score: 0.8612}, Life: time.Hour,
			Parts: "depth 0.7 of weight 0.3, wait 0.93 of weight 0.7",
		})
		must(s.t, err)
		s.enqueue("a")
	}},
	{"reserved", []string{"queue", "mail"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"reserved":{"classes":["high"],"percent":50}}}}`, "letters first")
		s.enqueue("a")
		s.enqueue("b")
		s.work(2, 1, "")
	}},
	{"pressure of old", []string{"queue", "mail"}, func(s *stage) {
		s.put(`{"queues":{"mail":{"pressure":{"max_depth":10},"max_running":4}}}`, "quiet hours")
	}},
	{"dead", []string{"job", "acme:a"}, func(s *stage) {
		s.enqueue("a")
		s.work(1, 1, store.Kill)
	}},
	{"limit of a tier", []string{"scope", "acme", "scope", "global"}, func(s *stage) {
		s.put(slow, "slow")
		s.enqueue("a")
	}},
	{"bucket", []string{"scope", "acme:mail", "tenant", "acme", "scope", "acme:mail:high"}, func(s *stage) {
		s.put(`{"queue_limits":{"acme:mail":{"tokens":1,"per":"24h","burst":1}},"global":{"tokens":1000,"per":"24h","burst":1000}}`, "too strict")
		s.put(`{"tenants":{"acme":{"tier":"basic","limit":{"tokens":10,"per":"24h","burst":10}}},"queue_limits":{"acme:mail":{"tokens":1,"per":"24h","burst":1}}}`, "launch")
		s.enqueue("a")
	}},
	{"suspended", []string{"scope", "acme:mail", "tenant", "acme"}, func(s *stage) {
		must(s.t, s.store.Suspend(s.t.Context(), store.TenantQueueGate("acme", "mail"), time.Hour, store.Intervention{Reason: "bounces"}))
		must(s.t, s.store.Suspend(s.t.Context(), store.QueueGate("mail"), 0, store.Intervention{Reason: "moving"}))
	}},
	{"scaled", []string{"scope", "acme:mail", "scope", "bolt", "scope", "global"}, func(s *stage) {
		s.put(`{"tenants":{"acme":{"limit":{"tokens":50,"per":"24h","burst":50}}},"queue_limits":{"acme:mail":{"tokens":1,"per":"24h","burst":1}},"global":{"tokens":1000,"per":"24h","burst":1000}}`, "too strict")
		for target, part := range map[store.GateName]float64{store.ScaleAll: 0.5, store.TenantGate("acme"): 0.2} {
			_, err := s.store.ScaleLimits(s.t.Context(), target, part, time.Hour, store.Intervention{Author: "ada", Reason: "db on fire"})
			must(s.t, err)
		}
		s.enqueue("a")
	}},
}

var (
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`)
	places = regexp.MustCompile(`pool [0-9a-f]{12}`)
)

// TestEachReasonIsExplained brings about each thing that may hold a job back or refuse it, on a real store, and reads what
// is told of it in testdata.
func TestEachReasonIsExplained(t *testing.T) {
	t.Parallel()
	for _, scene := range slices.Concat(scenes, queueScenes) {
		t.Run(scene.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			scene.set(s)
			var text strings.Builder
			for i := 0; i < len(scene.explain); i += 2 {
				e, err := explain.New(t.Context(), s.store, scene.explain[i], scene.explain[i+1], shown.Everything)
				must(t, err)
				e.Write(&text)
			}
			got := places.ReplaceAllString(times.ReplaceAllString(text.String(), "TIME"), "POOL")
			file := filepath.Join("testdata", strings.ReplaceAll(scene.name, " ", "_")+".txt")
			if *update {
				must(t, os.WriteFile(file, []byte(got), 0o600))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestSharesOfPartitionsAreExplained(t *testing.T) {
	t.Parallel()
	st, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 2})
	must(t, err)
	s := &stage{t: t, store: st}
	s.put(`{"downstreams":{"smtp":{"max_running":9,"dispatch":{"tokens":5,"per":"1s","burst":4}}},"global":{"tokens":7,"per":"24h","burst":8}}`, "")
	for _, row := range []struct {
		kind, name string
		wants      []string
	}{
		{explain.Downstream, "smtp", []string{"runs 8 jobs at a time and has 0; the partitions have 4, 4 of that", "4 at once; the partitions have 2.5, 2.5 of that"}},
		{explain.Scope, "global", []string{"gets 7 tokens a day; the partitions have 3.5, 3.5 of that"}},
		{explain.Tenant, "acme", []string{"gets 7 tokens a day; the partitions have 3.5, 3.5 of that"}},
	} {
		e, err := explain.New(t.Context(), st, row.kind, row.name, shown.Everything)
		must(t, err)
		for _, want := range row.wants {
			if !slices.ContainsFunc(e.Reasons, func(r explain.Reason) bool { return strings.Contains(r.Text, want) }) {
				t.Errorf("nothing about %s says %q: %+v", row.name, want, e.Reasons)
			}
		}
	}
}

// TestUntilIsByTheClockOfRedis: the time that a refused tenant is told is when its bucket holds a token.
func TestUntilIsByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.put(`{"tenants":{"acme":{"limit":{"tokens":1,"per":"24h","burst":1}}}}`, "")
	s.enqueue("a")
	e, err := explain.New(t.Context(), s.store, explain.Tenant, "acme", shown.Everything)
	must(t, err)
	now, err := s.store.Time(t.Context())
	must(t, err)
	for _, r := range e.Reasons {
		if r.Kind != "limit" || !r.Binds {
			continue
		}
		if wait := r.Until.Sub(now); wait < 23*time.Hour || wait > 24*time.Hour {
			t.Errorf("until %s, which is %s from now", r.Until, wait)
		}
		return
	}
	t.Errorf("no limit binds: %+v", e)
}

func TestWhatCannotBeExplainedIsNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, row := range []struct {
		kind, name string
		want       error
	}{
		{"job", "acme", admission.ErrInvalid},
		{"job", "acme:never", admission.ErrUnknownJob},
		{"tenant", "global", admission.ErrInvalid},
		{"scope", "a:b:c:d", admission.ErrInvalid},
		{"scope", "acme:mail:urgent", admission.ErrInvalid},
		{"downstream", "a^b", admission.ErrInvalid},
		{"queue", "mail", store.ErrUnknownQueue},
		{"queue", "a^b", admission.ErrInvalid},
		{"lane", "mail", admission.ErrInvalid},
	} {
		if _, err := explain.New(t.Context(), s.store, row.kind, row.name, shown.Everything); !errors.Is(err, row.want) {
			t.Errorf("%s %s: %v", row.kind, row.name, err)
		}
	}
}

// TestARateCountsThoseBefore: the time that a job behind others is told is not when the next of them starts, but when it may itself.
func TestARateCountsThoseBefore(t *testing.T) {
	t.Parallel()
	for policy, kind := range map[string]string{
		`{"downstreams":{"smtp":{"dispatch":{"tokens":1,"per":"1h","burst":1}}}}`: "downstream smtp",
		`{"tenants":{"acme":{"dispatch":{"tokens":1,"per":"1h","burst":1}}}}`:     "tenant acme",
	} {
		s := newStage(t)
		s.put(policy, "")
		s.work(5, 0, "")
		for _, id := range []string{"a", "b", "c", "d"} {
			s.enqueue(id)
		}
		now, err := s.store.Time(t.Context())
		must(t, err)
		for id, hours := range map[string]int{"b": 1, "d": 3} {
			e, err := explain.New(t.Context(), s.store, explain.Job, "acme:"+id, shown.Everything)
			must(t, err)
			r := e.Reasons[0]
			if wait := r.Until.Sub(now); wait > time.Duration(hours)*time.Hour || wait < time.Duration(hours)*time.Hour-time.Minute {
				t.Errorf("%s, job %s: in %s, want about %d h: %+v", kind, id, wait, hours, r)
			}
			if before := "2 jobs go before it"; strings.Contains(r.Text, before) != (id == "d") || !strings.HasPrefix(r.Text, kind) {
				t.Errorf("%s, job %s: %s", kind, id, r.Text)
			}
		}
	}
}

// TestWhoMadeARuleIsKnownOfLargeEdits: also of what the audit's list of changes, which is cut, does not name; not of what the edit left alone.
func TestWhoMadeARuleIsKnownOfLargeEdits(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	document := func(most int) string {
		var queues []string
		for i := range 30 {
			queues = append(queues, fmt.Sprintf(`"q%d":{"max_running":%d}`, i, most))
		}
		return `{"queues":{` + strings.Join(queues, ",") + `},"tenants":{"acme":{"tier":"basic"}}}`
	}
	s.put(document(1), "three plans")
	s.put(document(2), "more")
	e, err := explain.New(t.Context(), s.store, explain.Tenant, "acme", shown.Everything)
	must(t, err)
	for _, r := range e.Reasons {
		if r.Kind != explain.KindTier {
			continue
		}
		if c := r.Rule.Changed; c == nil || c.Version != 1 || c.Author != "ada" || c.Reason != "three plans" {
			t.Errorf("%+v", c)
		}
		return
	}
	t.Errorf("no tier: %+v", e)
}
