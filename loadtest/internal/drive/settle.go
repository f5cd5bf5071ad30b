package drive

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
)

// settleEvery is how often settle looks.
const settleEvery = 20 * time.Millisecond

// accountPatience is how long a Redis that has just come back may take to answer.
const accountPatience = 15 * time.Second

// settle waits until every job that entered has ended, or none has for the plan's Quiet, or ctx ends. Jobs whose answer
// was lost may be in too, and of one that was late no handler tells: nobody but the system knows, so it is asked.
func settle(ctx context.Context, s System, book *record.Book, plan *load.Plan) {
	ended, since := int64(-1), time.Now()
	for sleep(ctx, settleEvery) {
		p := book.Progress()
		if p.Ended != ended {
			ended, since = p.Ended, time.Now()
			continue
		}
		if p.Ended >= p.Admitted || plan.Overload != nil {
			if a, err := s.Account(ctx); err == nil && a.Held == 0 {
				return
			}
		}
		if time.Since(since) > plan.Quiet {
			return
		}
	}
}

// account asks for what is left, also of a system whose Redis is late.
func account(ctx context.Context, s System) (figures.Account, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), accountPatience)
	defer cancel()
	for {
		a, err := s.Account(ctx)
		if err == nil {
			return a, nil
		}
		if !sleep(ctx, settleEvery) {
			return figures.Account{}, errors.Join(err, context.Cause(ctx))
		}
	}
}
