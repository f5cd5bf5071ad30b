package headgate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
)

type welcome struct{ To string }

func (welcome) Kind() string { return "welcome" }

type report struct{ Pages int }

func (report) Kind() string { return "report" }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func open(tb testing.TB, config headgate.Config) *headgate.Client {
	tb.Helper()
	config.Prefix = redistest.Prefix(tb)
	hg, err := headgate.Open(tb.Context(), redistest.Shared(tb).URL(), config)
	check(tb, err)
	tb.Cleanup(func() { check(tb, hg.Close()) })
	return hg
}

// run runs a worker until the test ends.
func run(tb testing.TB, w *headgate.Worker) {
	tb.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			tb.Errorf("run: %v", err)
		}
	})
	tb.Cleanup(func() {
		stop()
		running.Wait()
	})
}

func TestAJobGoesThroughTheDoor(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
	seen := make(chan headgate.Run[welcome], 1)
	headgate.Handle(w, func(_ context.Context, job *headgate.Run[welcome]) error {
		seen <- *job
		return job.SetResult(report{Pages: 3}, time.Minute)
	})
	raw := make(chan headgate.Raw, 1)
	headgate.HandleRaw(w, "bytes", func(_ context.Context, job *headgate.Run[headgate.Raw]) error {
		raw <- job.Args
		return nil
	})
	run(t, w)
	receipt, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{To: "ada"}, Headers: map[string]string{"trace": "1"}})
	check(t, err)
	again, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{To: "ada"}, ID: receipt.ID})
	if err != nil || !again.Duplicate || again.ID != receipt.ID || receipt.Duplicate {
		t.Errorf("%+v, then %+v, %v", receipt, again, err)
	}
	if job := <-seen; job.Args.To != "ada" || job.ID != receipt.ID || job.Tenant != "acme" || job.Queue != "mail" || job.Attempt != 1 || job.Headers["trace"] != "1" {
		t.Errorf("the handler was given %+v", job)
	}
	for {
		got, err := headgate.ResultOf[report](t.Context(), hg, headgate.Key{Tenant: "acme", ID: receipt.ID})
		if errors.Is(err, headgate.ErrUnknownJob) {
			continue
		}
		if err != nil || got.Pages != 3 {
			t.Errorf("%+v, %v", got, err)
		}
		break
	}
	_, err = hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "mail", Args: headgate.Raw{Type: "bytes", Payload: []byte{0, 1}}})
	check(t, err)
	if got := <-raw; got.Type != "bytes" || !bytes.Equal(got.Payload, []byte{0, 1}) {
		t.Errorf("%+v", got)
	}
}

// TestARefusalIsHeardInOneWay: from Enqueue, from a batch, from a limiter and from a breaker.
func TestARefusalIsHeardInOneWay(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{Breaker: breaker.Config{MinCalls: 1, OpenBase: time.Hour}})
	check(t, hg.Policy().Change(t.Context(), headgate.Edit{Author: "ada", Reason: "small"}, func(p *headgate.Policy) {
		p.Tier("small").Limit = headgate.PerHour(1).WithBurst(2)
		p.Tenant("acme").Tier = "small"
	}))
	job := func(id string) headgate.Job {
		return headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{To: "ada"}, ID: id}
	}
	refused := func(what string, err error, reason headgate.Reason, scope headgate.Scope) {
		t.Helper()
		no, ok := errors.AsType[*headgate.Refusal](err)
		if !ok || no.Reason != reason || no.Scope != scope || !errors.Is(err, headgate.ErrRefused) || reason == headgate.ReasonLimited && (no.RetryAfter < time.Minute || no.Burst != 2) {
			t.Errorf("%s: %+v", what, err)
		}
	}
	results, err := hg.EnqueueBatch(t.Context(), []headgate.Job{job("a"), {Tenant: "acme", Queue: "mail"}, job("b"), job("c")})
	if len(results) != 4 || results[0].Err != nil || results[2].Receipt.ID != "b" || !errors.Is(results[1].Err, headgate.ErrInvalid) || err == nil {
		t.Errorf("%+v, %v", results, err)
	}
	for i, left := range map[int]headgate.Tokens{0: 1, 2: 0} {
		if r := results[i].Receipt; r.Remaining != left || r.Burst != 2 {
			t.Errorf("%+v, want %d left of 2", r, left)
		}
	}
	refused("a batch", results[3].Err, headgate.ReasonLimited, "acme")
	receipt, err := hg.Enqueue(t.Context(), job("d"))
	refused("Enqueue", err, headgate.ReasonLimited, "acme")
	if receipt.ID != "d" || receipt.Burst != 0 { // What is left is the refusal's to say.
		t.Errorf("%+v", receipt)
	}
	free := job("e")
	free.Tenant = "globex" // It has the built-in limit of a tier that nobody changed.
	if receipt, err = hg.Enqueue(t.Context(), free); err != nil || receipt.Remaining != 49 || receipt.Burst != 50 {
		t.Errorf("%+v, %v", receipt, err)
	}
	check(t, hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) { p.Tenant("globex").Limit = &headgate.Limit{Disabled: true} }))
	free.ID = "f"
	if receipt, err = hg.Enqueue(t.Context(), free); err != nil || receipt.Remaining != 0 || receipt.Burst != 0 {
		t.Errorf("%+v, %v", receipt, err)
	}
	limiter, err := hg.Limiter(headgate.LimiterConfig{Timeout: 5 * time.Second})
	check(t, err)
	defer func() { check(t, limiter.Close(t.Context())) }()
	_, err = limiter.Check(t.Context(), headgate.Request{Tenant: "acme"})
	refused("Check", err, headgate.ReasonLimited, "acme")
	if allowed, err := limiter.Check(t.Context(), headgate.Request{Tenant: "globex"}); err != nil || allowed != (headgate.Allowed{}) {
		t.Errorf("%+v, %v, want no limit to tell of", allowed, err)
	}

	smtp := hg.Breaker("smtp")
	for range 100 { // until it has opened
		done, err := smtp.Acquire(t.Context())
		if err != nil {
			refused("Acquire", err, headgate.ReasonBreaker, "")
			return
		}
		done(errors.New("451"))
	}
	t.Error("100 failures opened no breaker")
}

func TestWhatAHandlerSaysCanBeTold(t *testing.T) {
	t.Parallel()
	cause := errors.New("451")
	wrapped := fmt.Errorf("send: %w", headgate.RetryAfter(time.Minute, cause))
	if d, ok := headgate.IsRetryAfter(wrapped); !ok || d != time.Minute || !errors.Is(wrapped, cause) {
		t.Errorf("%s, %t", d, ok)
	}
	if d, ok := headgate.IsSnooze(headgate.Snooze(time.Second)); !ok || d != time.Second {
		t.Errorf("%s, %t", d, ok)
	}
	if !headgate.IsDiscard(headgate.Discard(cause)) || !headgate.IsIgnored(headgate.Ignore(cause)) || headgate.IsDiscard(cause) || headgate.IsIgnored(cause) {
		t.Error("Discard and Ignore are not told apart")
	}
	if _, ok := headgate.IsSnooze(cause); ok {
		t.Error("an error is a Snooze")
	}
	if _, ok := headgate.IsRetryAfter(cause); ok {
		t.Error("an error is a RetryAfter")
	}
}

func TestAPolicyIsChangedInOneCall(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	ctx := t.Context()
	check(t, hg.Policy().Change(ctx, headgate.Edit{Author: "ada", Reason: "gold"}, func(p *headgate.Policy) {
		p.Tier("gold").Limit = headgate.PerSecond(200).WithBurst(400)
		p.Queue("llm").MaxRunningPerTenant = 4
		p.Tenant("acme").Tier = "gold"
		p.Tenant("acme").MaxRunning = 2
	}))
	now, err := hg.Policy().Current(ctx)
	if err != nil || now.Tiers["gold"].Limit != headgate.PerSecond(200).WithBurst(400) || now.Tenants["acme"].Tier != "gold" || now.Tenants["acme"].MaxRunning != 2 || now.Queues["llm"].MaxRunningPerTenant != 4 {
		t.Errorf("%+v, %v", now, err)
	}
	err = hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tenant("acme").Tier = "platinum"
		p.Queue("llm").MaxRunning = -1
	})
	if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "platinum") || !strings.Contains(err.Error(), "-1") {
		t.Errorf("two faults: %v", err)
	}
	document := []byte(`{"queues":{"llm":{"max_running_per_tenant":5}}}`)
	err = hg.Policy().Apply(ctx, document, headgate.Edit{})
	if dropped, ok := errors.AsType[*headgate.DropError](err); !ok || !strings.Contains(strings.Join(dropped.Paths, " "), "/tenants/acme") {
		t.Errorf("what is not named: %v", err)
	}
	check(t, hg.Policy().Apply(ctx, document, headgate.Edit{Author: "ada", Replace: true}))
	if now, err = hg.Policy().Current(ctx); err != nil || len(now.Tenants) != 0 || now.Queues["llm"].MaxRunningPerTenant != 5 {
		t.Errorf("%+v, %v", now, err)
	}
}

// TestAChangeOfThePolicyIsInTheAudit: with the settings that it changed, also of entries that were there before, so that whoever asks
// is told who made a rule.
func TestAChangeOfThePolicyIsInTheAudit(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	ctx := t.Context()
	for running := 2; running <= 4; running++ {
		check(t, hg.Policy().Change(ctx, headgate.Edit{Author: "ada", Reason: "on trial"}, func(p *headgate.Policy) {
			p.Tier("standard").Limit = headgate.PerSecond(100).WithBurst(headgate.Tokens(running))
			p.Tier("standard").Weights["high"] = headgate.Weight(running + 1)
			p.Tenant("acme").MaxRunning = running
		}))
		why, err := hg.Inspect().ExplainTenant(ctx, "acme")
		check(t, err)
		var text strings.Builder
		why.Write(&text)
		if since := fmt.Sprintf("since version %d by ada: on trial", running-1); strings.Count(text.String(), since) != 2 { // The limit and the cap.
			t.Errorf("%q is not said of both:\n%s", since, &text)
		}
	}
}

func TestJobsAreFoundExplainedAndActedOn(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	ctx, operate := t.Context(), hg.Operate("ada")
	running, err := operate.Pause(ctx, headgate.Queue("mail"), headgate.For(10*time.Minute, "provider migrates"))
	if err != nil || running != 0 {
		t.Errorf("%d, %v", running, err)
	}
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 2, "report": 1}})
	headgate.Handle(w, func(context.Context, *headgate.Run[welcome]) error { return headgate.Discard(errors.New("451")) })
	run(t, w)
	for _, id := range []string{"a", "b"} {
		_, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{}, ID: id})
		check(t, err)
	}
	list := func(f headgate.Filter) string {
		var ids strings.Builder
		for job, err := range hg.Inspect().Jobs(ctx, f) {
			check(t, err)
			ids.WriteString(job.Key.ID + " " + string(job.Place) + ";")
		}
		return ids.String()
	}
	if got := list(headgate.Filter{Tenant: "acme", Place: headgate.PlaceWaiting}); !strings.Contains(got, "a waiting;") || !strings.Contains(got, "b waiting;") {
		t.Errorf("waiting: %s", got)
	}
	why, err := hg.Inspect().Explain(ctx, headgate.Key{Tenant: "acme", ID: "a"})
	text, _ := json.Marshal(why)
	if err != nil || len(why.Reasons) == 0 || !strings.Contains(string(text), "provider migrates") {
		t.Errorf("%s, %v", text, err)
	}
	if running, err := operate.Cancel(ctx, headgate.Key{Tenant: "acme", ID: "b"}, "not needed"); err != nil || running {
		t.Errorf("%t, %v", running, err)
	}
	if was, err := operate.Resume(ctx, headgate.Queue("mail"), "it is done"); err != nil || !was {
		t.Errorf("%t, %v", was, err)
	}
	dead := headgate.Filter{Tenant: "acme", Place: headgate.PlaceDead}
	for list(dead) != "a dead;" {
		if ctx.Err() != nil {
			t.Fatal("a did not die")
		}
	}
	if n, err := operate.Redrive(ctx, headgate.Filter{Tenant: "acme", Error: "452"}, "mended", headgate.DryRun); err != nil || n != 0 {
		t.Errorf("of another error would redrive %d, %v", n, err)
	}
	dead.Error = "451"
	if n, err := operate.Redrive(ctx, dead, "mended", headgate.DryRun); err != nil || n != 1 || list(dead) != "a dead;" {
		t.Errorf("would redrive %d, %v", n, err)
	}
	if n, err := operate.Redrive(ctx, dead, "mended", false); err != nil || n != 1 {
		t.Errorf("redrove %d, %v", n, err)
	}
}

// TestAWorkerSaysAllThatIsWrong when it starts, and nothing is sent.
func TestAWorkerSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	w := hg.Worker(headgate.WorkerConfig{Concurrency: -1, Lease: time.Hour})
	for range 2 {
		headgate.Handle(w, func(context.Context, *headgate.Run[welcome]) error { return nil })
	}
	headgate.HandleRaw(w, "a type", func(context.Context, *headgate.Run[headgate.Raw]) error { return nil })
	err := w.Run(t.Context())
	for _, part := range []string{"Queues", "Concurrency", "Lease", `invalid type "welcome": allowed is one handler a type`, `invalid type "a type"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("no word of %s: %v", part, err)
		}
	}
	w = hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
	for range 2 {
		headgate.Handle(w, func(context.Context, *headgate.Run[welcome]) error { return nil })
	}
	if err := w.Run(t.Context()); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "welcome") {
		t.Errorf("two handlers of a kind: %v", err)
	}
	if _, err := headgate.Open(t.Context(), "http://localhost", headgate.Config{}); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "redis://") {
		t.Errorf("a scheme that there is not: %v", err)
	}
	hg, err = headgate.Open(t.Context(), redistest.Shared(t).Addr(), headgate.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatalf("a bare host:port: %v", err)
	}
	if err := hg.Close(); err != nil {
		t.Error(err)
	}
}

// TestTheRoomsLogThroughTheDoor: what they write is a record of slog.
func TestTheRoomsLogThroughTheDoor(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var text bytes.Buffer
	lines := func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
	hg := open(t, headgate.Config{Logger: slog.New(slog.NewJSONHandler(locked{&mu, &text}, nil))})
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
	headgate.Handle(w, func(context.Context, *headgate.Run[welcome]) error { return headgate.Discard(errors.New("451 later")) })
	run(t, w)
	_, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{}, ID: "a"})
	check(t, err)
	for !strings.Contains(lines(), "451 later") {
		if t.Context().Err() != nil {
			t.Fatal("no word of the handler's error")
		}
	}
	for line := range strings.Lines(lines()) {
		if !strings.Contains(line, "451 later") {
			continue
		}
		var said map[string]any
		check(t, json.Unmarshal([]byte(line), &said))
		if said["level"] != "ERROR" || said["msg"] == "" || said["tenant"] != "acme" || said["time"] == nil {
			t.Errorf("%s", line)
		}
	}
}

type locked struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// TestEveryFaultOfAJobIsSaidAtOnce: also where its arguments are none.
func TestEveryFaultOfAJobIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	for _, args := range []headgate.Args{nil, unwritable{}, headgate.Raw{Type: "a b"}} {
		_, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: "a b", Queue: "mail", Cost: -1, Args: args})
		field := "args"
		if _, raw := args.(headgate.Raw); raw {
			field = "type"
		}
		for _, want := range []string{"invalid " + field, `invalid tenant "a b"`, "invalid cost -1"} {
			if err == nil || strings.Count(err.Error(), want) != 1 || strings.Count(err.Error(), "invalid ") != 3 {
				t.Errorf("%q is not said of %#v: %v", want, args, err)
			}
		}
	}
}

// unwritable are arguments that JSON has no words for.
type unwritable struct{ F func() }

func (unwritable) Kind() string { return "unwritable" }

// TestABreakerIsOpenedByHand: jobs of the downstream wait, and are told who did it and why, until it is reset.
func TestABreakerIsOpenedByHand(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	ctx := t.Context()
	check(t, hg.Operate("ada").OpenBreaker(ctx, "smtp", headgate.For(time.Hour, "they move")))
	receipt, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Downstream: "smtp", Args: welcome{}})
	check(t, err)
	said := func() string {
		t.Helper()
		why, err := hg.Inspect().Explain(ctx, headgate.Key{Tenant: "acme", ID: receipt.ID})
		check(t, err)
		return why.String()
	}
	if text := said(); !strings.Contains(text, "! breaker: the circuit breaker of downstream smtp is open: forced, they move (ada), until ") {
		t.Errorf("%s", text)
	}
	check(t, hg.Operate("ada").ResetBreaker(ctx, "smtp", "they have moved"))
	if text := said(); strings.Contains(text, "! breaker") {
		t.Errorf("%s", text)
	}
	if err := hg.Operate("ada").OpenBreaker(ctx, "a b", headgate.Hold{}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a downstream that is none: %v", err)
	}
}
