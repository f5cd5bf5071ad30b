package examples_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// signUp enqueues a mail and says what became of it.
func signUp(ctx context.Context, hg headgate.Enqueuer, job headgate.Job) string {
	//snippet:begin refusal
	receipt, err := hg.Enqueue(ctx, job)
	var no *headgate.Refusal
	switch {
	case err == nil: // it is in: receipt has its ID, its place in the line, and how many tokens remain
	case errors.As(err, &no): // it is not in, and cost nothing: no.Reason, no.Scope and no.RetryAfter say why, where and until when
		return fmt.Sprintf("%s has %d of %d tokens, try again in %s", no.Scope, no.Remaining, no.Burst, no.RetryAfter.Round(time.Minute))
	case errors.Is(err, headgate.ErrUnavailable): // it is not in: Redis was away, and nothing was sent
	case errors.Is(err, headgate.ErrOutcomeUnknown): // it may be in: the same ID again tells, and makes no second job
	}
	//snippet:end
	return fmt.Sprint(receipt.ID, " ", receipt.Duplicate, " ", err)
}

func TestARefusalSaysWhy(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	check(t, smallTier(ctx, hg))
	for _, try := range []struct{ id, want string }{
		{"1", "1 false <nil>"},
		{"1", "1 true <nil>"},
		{"2", "2 false <nil>"},
		{"3", "acme has 0 of 2 tokens, try again in 1h0m0s"},
	} {
		if got := signUp(ctx, hg, headgate.Job{Tenant: "acme", Queue: "mail", Args: Welcome{To: "ada"}, ID: try.id}); got != try.want {
			t.Errorf("%s, want %s", got, try.want)
		}
	}
}

// smallTier lets acme send two mails an hour.
func smallTier(ctx context.Context, hg *headgate.Client) error {
	//snippet:begin policy
	return hg.Policy().Change(ctx, headgate.Edit{Author: "ada", Reason: "on trial"}, func(p *headgate.Policy) {
		p.Tier("trial").Limit = headgate.PerHour(1).WithBurst(2)
		p.Tenant("acme").Tier = "trial"
		p.Queue("llm").MaxRunningPerTenant = 4
	})
	//snippet:end
}
