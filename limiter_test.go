package headgate_test

import (
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
	const burst = 2000
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.Limit{Tokens: 1, Per: time.Hour, Burst: burst}
	}))
	_, err = hg.Limiter(headgate.LimiterConfig{WithoutRedis: "fail-open"})
	if want := `open limiter: invalid WithoutRedis "fail-open": allowed is "share", "open", "closed" or "grace"`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	limiter, err := hg.Limiter(headgate.LimiterConfig{WithoutRedis: "open", Timeout: time.Second})
	check(t, err)
	ask := func(tenant string) bool {
		err := limiter.Check(ctx, headgate.Request{Tenant: tenant, Cost: 10})
		if no, refused := errors.AsType[*headgate.Refusal](err); refused && no.Scope == "acme" {
			return false
		}
		check(t, err)
		return true
	}
	admitted, refused := uint64(0), uint64(0)
	for range burst/10 + 5 {
		if ask("acme") {
			admitted++
		} else {
			refused++
		}
	}
	s := limiter.Stats()
	if s.Admitted != admitted || s.Refused != refused || refused < 5 || s.BlindAdmitted+s.BlindRefused != 0 || s.Calls == 0 || s.Leased == 0 {
		t.Errorf("%+v, want %d and %d", s, admitted, refused)
	}
	redis.Kill(t)
	if !ask("bolt") {
		t.Error("refused without Redis")
	}
	blind := limiter.Stats()
	s.BlindAdmitted, s.BlindTokens = 1, 10
	if blind != s {
		t.Errorf("%+v after a blind check, want %+v", blind, s)
	}
}
