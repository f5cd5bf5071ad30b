package producer

import (
	"context"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// shadow asks a candidate in shadow about the jobs that limits have decided on. A call that gets no answer is not sent
// again: what it did not count is missing, and nothing else.
func (p *Producer) shadow(ctx context.Context, snapshot *policy.Compiled, entries []*entry) {
	if snapshot.ShadowID() == "" {
		return
	}
	var questions []store.Question
	for _, e := range entries {
		limited := e.verdict.Reason == admission.ReasonLimited || e.verdict.Reason == admission.ReasonTooCostly
		if e.verdict.Decision != admission.Admitted && !limited {
			continue // A duplicate, or a job that is refused for another reason, takes no tokens under any limits.
		}
		if limits, ok := snapshot.ShadowFor(e.job.Tenant, e.job.Queue, e.job.Priority); ok {
			questions = append(questions, store.Question{
				Tenant: e.job.Tenant, Queue: e.job.Queue, Class: e.job.Priority, Cost: e.cost(), Limits: limits,
				TypeLimit: store.TypeLimitOf(e.job.Type, snapshot.ShadowTypeLimit(e.job.Tenant, e.job.Queue, e.job.Type)),
			})
		}
	}
	if len(questions) == 0 {
		return
	}
	if err := p.store.Shadow(ctx, snapshot.Version(), snapshot.ShadowID(), questions); err != nil {
		p.config.Logger.Warn().Err(err).Int("jobs", len(questions)).Msg("a candidate in shadow was not asked")
	}
}
