package worker

import (
	"context"
	"time"
)

// GuestCall is one call that may go on. It must be ended once; further ends do nothing.
type GuestCall struct {
	guest      *Guest
	part       *guestPart
	downstream string
	// call is nil where nothing is guarded, probe the name under which it holds a place; empty for none.
	call  *guardedCall
	probe string
}

// Probe reports whether the call decides about a half-open breaker: its failure is the breaker's, not the work's.
func (c *GuestCall) Probe() bool { return c.call.probe() }

// Timeout returns how long the call may take, where it is a probe; zero for as long as its work.
func (c *GuestCall) Timeout() time.Duration { return c.call.mostTime() }

// Succeeded ends the call: the downstream answered well. That of a probe is reported before it returns.
func (c *GuestCall) Succeeded(ctx context.Context) {
	c.call.succeeded()
	c.giveBack(ctx)
}

// Failed ends the call: the downstream failed, or gave no answer in time. That of a probe is reported before it returns.
func (c *GuestCall) Failed(ctx context.Context) { c.FailedBy(ctx, nil) }

// FailedBy is Failed, and keeps the error among the last ones of the breaker; nil is none.
func (c *GuestCall) FailedBy(ctx context.Context, err error) {
	_ = c.call.failed(err)
	c.giveBack(ctx)
}

// Ignored ends the call without a verdict: it was cancelled, or refused on this side.
func (c *GuestCall) Ignored(ctx context.Context) {
	c.call.ignored()
	c.giveBack(ctx)
}

// giveBack gives a probe's place free, whatever became of ctx.
func (c *GuestCall) giveBack(ctx context.Context) {
	c.call.returnProbe(ctx)
	if c.probe == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	word, more, err := c.part.store.EndProbe(ctx, c.downstream, c.probe)
	if err != nil {
		c.guest.config.Logger.Warn().Err(err).Str("downstream", c.downstream).Msg("a probe keeps its place until its time-out")
		return
	}
	c.probe = ""
	if own := c.part.breakers.guardOf(c.downstream); own != nil {
		c.part.answered(own, word, more)
	}
}
