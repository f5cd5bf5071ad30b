package fleet

import (
	"context"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/store"
)

// count takes note of an outcome for the next report. Somebody waits for the report if told is not nil.
func (b *Breakers) count(g *Guard, period uint64, o outcome, told chan struct{}) {
	waiting := g.count(period, o, told)
	b.mu.Lock()
	b.mu.dirty[g] = true
	b.mu.Unlock()
	if told != nil || waiting >= b.after {
		b.urgent.Give()
	}
	b.work.Give()
}

// await waits until what was counted is reported, but not for a Redis that is away.
func (b *Breakers) await(told <-chan struct{}) {
	timer := time.NewTimer(CallTimeout)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
	}
}

// Run reports outcomes until ctx ends. Nothing is sent while there is nothing to say.
func (b *Breakers) Run(ctx context.Context) {
	trouble := b.Watch.Trouble("report outcomes", FirstPause, LastPause)
	defer trouble.Leave()
	for {
		select {
		case <-b.work:
		case <-ctx.Done():
			return
		}
		b.collect(ctx)
		for batch := b.next(); len(batch) > 0; batch = b.next() {
			b.send(ctx, batch, trouble)
		}
	}
}

// collect gives others the time to add to the next report, unless something in it is urgent, but not for longer than half of a window: what has
// left that is not reported.
func (b *Breakers) collect(ctx context.Context) {
	wait := b.every
	b.mu.Lock()
	for _, g := range b.mu.guards { // Also of one that has nothing to report yet.
		wait = min(wait, g.Local().Config().Window/2)
	}
	b.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-b.urgent:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// next takes what goes with the next call.
func (b *Breakers) next() []*numbered {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*numbered
	for g := range b.mu.dirty {
		taken, all := g.take(store.MaxReports-len(batch), &b.sequence)
		batch = append(batch, taken...)
		if !all {
			break
		}
		delete(b.mu.dirty, g)
	}
	return batch
}

// send sends a batch until it is answered: the numbers in it let it count once. What has left the window meanwhile is
// dropped.
func (b *Breakers) send(ctx context.Context, batch []*numbered, trouble *outage.Trouble) {
	defer func() {
		for _, n := range batch {
			n.settle()
		}
	}()
	for ctx.Err() == nil {
		var reports []store.Outcomes
		var sent []*numbered
		for _, n := range batch {
			if config := n.guard.Local().Config(); time.Since(n.since) <= config.Window {
				sent = append(sent, n)
				r, by := n.report(), n.guard.by.Load()
				r.Sequence, r.Origin, r.Version = n.sequence, by.origin, by.version
				reports = append(reports, store.Outcomes{Downstream: n.guard.Name, Config: config, Report: r, Ran: n.ran, Refused: n.refused, Push: n.push, PushFor: n.pushFor, Errors: n.errors})
			}
		}
		if len(reports) == 0 {
			return
		}
		words, err := b.call(ctx, reports)
		if err == nil {
			trouble.Over()
			if version := words[0].Policy; version != b.policy.policy.Load().Version() && version != b.read {
				b.read = version // Once: what cannot be read now, can not either a moment later.
				b.reread(ctx)
			}
			for i, n := range sent {
				b.answered(n.guard, words[i])
			}
			return
		}
		trouble.Failed(ctx, err)
	}
}

// call makes one round trip.
func (b *Breakers) call(ctx context.Context, reports []store.Outcomes) ([]store.BreakerWord, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	words, more, err := b.store.ReportOutcomes(ctx, store.Reporter{Name: b.name, Guest: b.Guest}, reports)
	if more {
		b.Promoting.Give()
	}
	return words, err
}

// answered takes the answer to a report. Where the fleet's breaker is closed though the own one has opened, this worker is
// lonely.
func (b *Breakers) answered(g *Guard, word store.BreakerWord) {
	if !word.Full {
		b.Hear(g, b.ViewOf(word))
	}
	if g.setDiffers(word.Differs) {
		b.logger.Warn().Str("downstream", g.Name).
			Msg("other rules than this worker's are in force for this circuit breaker: another worker's, until none has them any more; headgate breaker show tells")
	}
	if len(word.Aside) > 0 {
		b.setAside(g, word.Aside)
	}
	if word.State != breaker.Closed || g.Local().State() != breaker.Open || g.unreported() {
		return // What is not reported yet may be why it has opened: the next answer tells.
	}
	if word.For < 0 {
		b.reconsider(g)
		return
	}
	// So far nobody else has reported anything: whether this worker is lonely shows when its vote has been counted.
	time.AfterFunc(word.For+b.every, func() { b.reconsider(g) })
}

// setAside lets calls of tenants that fail alone say nothing about this worker for a window, if they are why its own breaker has
// opened: that begins anew without them.
func (b *Breakers) setAside(g *Guard, tenants []uint16) {
	now := b.Instant()
	if g.Local().State() != breaker.Closed && g.setAside(tenants, now.Add(g.Local().Config().Window)) {
		g.Local().ResetAt(now, "calls of one tenant alone failed")
		b.lonely(g, false)
	}
}

// reconsider finds out whether this worker is lonely.
func (b *Breakers) reconsider(g *Guard) {
	if view := g.Fleet(); view.State == breaker.Closed && !view.forced && g.Local().State() == breaker.Open {
		b.lonely(g, true)
	}
}
