package headgate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
)

// TestALimiterCountsItsChecks: by what became of them, those that cost no call included, and those without Redis apart.
func TestALimiterCountsItsChecks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	redis := redistest.Start(t, redistest.Options{})
	hg, err := headgate.Open(ctx, redis.URL(), headgate.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, hg.Close()) })
	const burst = 1_000_000
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.Limit{Tokens: 1000, Per: time.Hour, Burst: burst}
	}))
	_, err = hg.Limiter(headgate.LimiterConfig{WithoutRedis: "fail-open"})
	if want := `open limiter: invalid WithoutRedis "fail-open": allowed is "share", "open", "closed" or "grace"`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	limiter, err := hg.Limiter(headgate.LimiterConfig{WithoutRedis: "open", Timeout: 10 * time.Second})
	check(t, err)
	admitted, refused := uint64(0), uint64(0)
	ask := func(tenant string, cost headgate.Tokens) {
		_, err := limiter.Check(ctx, headgate.Request{Tenant: tenant, Cost: cost})
		if no, is := errors.AsType[*headgate.Refusal](err); is && no.Scope == "acme" {
			refused++
			return
		}
		check(t, err)
		admitted++
	}
	// A limiter takes tokens on lease once it has measured what is used, so how many checks go before is a matter of their speed. After
	// the first that cost no call nothing is fetched beside the checks: a chunk of eight or more is not low yet.
	for end := time.Now().Add(time.Minute); limiter.Stats().Calls >= admitted; ask("acme", 1) {
		if time.Now().After(end) {
			t.Fatalf("each of %d checks cost a call", admitted)
		}
	}
	for refused < 5 {
		ask("acme", burst/10)
	}
	s := limiter.Stats()
	if s.Admitted != admitted || s.Refused != refused || s.BlindAdmitted+s.BlindRefused != 0 || s.Calls == 0 || s.Leased == 0 {
		t.Errorf("%+v, want %d and %d", s, admitted, refused)
	}
	redis.Kill(t)
	ask("bolt", 10)
	if refused != s.Refused {
		t.Error("refused without Redis")
	}
	blind := limiter.Stats()
	s.BlindAdmitted, s.BlindTokens = 1, 10
	if blind != s {
		t.Errorf("%+v after a blind check, want %+v", blind, s)
	}
}

// TestACheckTellsWhatIsLeft: the headers of a yes, without an allocation where it is answered by lease. It is not parallel, so that it may count.
func TestACheckTellsWhatIsLeft(t *testing.T) {
	ctx := t.Context()
	hg := open(t, headgate.Config{})
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tenant("slow").Limit = new(headgate.PerHour(1).WithBurst(4))
		p.Tenant("fast").Limit = new(headgate.PerSecond(1_000_000))
	}))
	limiter, err := hg.Limiter(headgate.LimiterConfig{Timeout: 5 * time.Second})
	check(t, err)
	t.Cleanup(func() { check(t, limiter.Close(context.WithoutCancel(ctx))) })
	allowed, err := limiter.Check(ctx, headgate.Request{Tenant: "slow", Cost: 3})
	if err != nil || allowed.Scope != "slow" || allowed.Remaining != 1 || allowed.Burst != 4 || allowed.Reset.Round(time.Minute) != 3*time.Hour {
		t.Errorf("%+v, %v, want 1 of 4 and three hours until they are there", allowed, err)
	}
	fast := headgate.Request{Tenant: "fast"}
	for range 1000 {
		_, err := limiter.Check(ctx, fast)
		check(t, err)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = limiter.Check(ctx, fast) }); n > 0.5 {
		t.Errorf("a check by lease allocates %g times", n)
	}
}

// TestANoAllocatesItsRefusalAlone: where a denial is remembered. The refusal says the same as the rooms' error, and what comes later does not change
// it. It is not parallel, so that it may count.
func TestANoAllocatesItsRefusalAlone(t *testing.T) {
	ctx := t.Context()
	hg := open(t, headgate.Config{})
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.PerHour(1).WithBurst(1)
	}))
	limiter, err := hg.Limiter(headgate.LimiterConfig{Timeout: 5 * time.Second})
	check(t, err)
	t.Cleanup(func() { check(t, limiter.Close(context.WithoutCancel(ctx))) })
	acme := headgate.Request{Tenant: "acme"}
	_, err = limiter.Check(ctx, acme)
	check(t, err)
	_, err = limiter.Check(ctx, acme) // Redis says no, which is remembered.
	no, refused := errors.AsType[*headgate.Refusal](err)
	if !refused {
		t.Fatalf("%v, want a refusal", err)
	}
	before, calls := *no, limiter.Stats().Calls
	if n := testing.AllocsPerRun(1000, func() { _, _ = limiter.Check(ctx, acme) }); n != 1 {
		t.Errorf("a no allocates %g times, want once", n)
	}
	if limiter.Stats().Calls != calls {
		t.Error("the denial was not remembered")
	}
	inner, is := errors.AsType[*headgate.RefusedError](err)
	if !is || !errors.Is(err, headgate.ErrLimited) || !errors.Is(err, headgate.ErrRefused) || errors.Is(err, headgate.ErrShed) || *no != before {
		t.Fatalf("%#v, before %+v", err, before)
	}
	if v := inner.Verdict; err.Error() != inner.Error() || v.Scope != "acme" || v.Burst != 1 || v.RetryAfter != no.RetryAfter || v.TokensLeft != 0 {
		t.Errorf("%s, %+v", err, v)
	}
}

// TestARefusalCanBeMadeByAFake: it has its reason's error, and says something.
func TestARefusalCanBeMadeByAFake(t *testing.T) {
	t.Parallel()
	var err error = &headgate.Refusal{Reason: headgate.ReasonLimited, Scope: "acme", RetryAfter: time.Second}
	if want := "job refused: scope acme holds 0 tokens, retry after 1s"; !errors.Is(err, headgate.ErrLimited) || err.Error() != want {
		t.Errorf("%s, want %s", err, want)
	}
}

// TestALimiterWaitsInThePlaceOfARefusal, unless that is of no use, and tells that as Check does.
func TestALimiterWaitsInThePlaceOfARefusal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	hg, err := headgate.Open(ctx, redistest.Start(t, redistest.Options{}).URL(), headgate.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, hg.Close()) })
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.Limit{Tokens: 1, Per: 20 * time.Millisecond, Burst: 1}
		p.Tenant("slow").Limit = new(headgate.PerHour(1))
	}))
	limiter, err := hg.Limiter(headgate.LimiterConfig{Timeout: 10 * time.Second})
	check(t, err)
	began := time.Now()
	for range 3 {
		check(t, limiter.Wait(ctx, headgate.Request{Tenant: "acme"}))
	}
	reserved, err := limiter.ReserveWait(ctx, headgate.Request{Tenant: "acme"})
	check(t, err)
	check(t, reserved.Cancel(ctx))
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("four tokens, one in 20 ms, passed in %s", took)
	}
	check(t, limiter.Wait(ctx, headgate.Request{Tenant: "slow"}))
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	no, is := errors.AsType[*headgate.Refusal](limiter.Wait(soon, headgate.Request{Tenant: "slow"}))
	if !is || no.Scope != "slow" || no.RetryAfter < 50*time.Minute || !errors.Is(no, context.DeadlineExceeded) || soon.Err() != nil {
		t.Errorf("%+v", no)
	}
}
