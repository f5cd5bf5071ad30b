package producer

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/store"
)

// counting is what limits have decided on and is not stored yet, of a producer and its parts.
type counting struct {
	tally.Tally

	// store is of the whole deployment.
	store store.Deployment
}

// note counts the jobs of a flight. Duplicates, and jobs that were refused for another reason, are none of the limits'.
func (p *Producer) note(ctx context.Context, entries []*entry) {
	if p.config.Uncounted {
		return
	}
	snapshot := p.limits.snapshot.Load()
	if snapshot != nil && snapshot.Watched() {
		p.counting.NoteJobs(func(add func(queue, tenant, id string)) {
			for _, e := range entries {
				if e.verdict.Decision == admission.Admitted {
					add(e.job.Queue, e.job.Tenant, e.job.ID)
				}
			}
		})
	}
	p.counting.NoteAlone(func(add func(tally.Path, tally.Sum)) {
		for _, e := range entries {
			one := tally.Sum{Tokens: e.cost()}
			switch {
			case e.verdict.Decision == admission.Admitted:
				one.Allowed = 1
			case e.verdict.Reason == admission.ReasonLimited || e.verdict.Reason == admission.ReasonTooCostly:
				one.Refused = 1
			default:
				continue
			}
			path := tally.Path{Tenant: e.job.Tenant, Queue: e.job.Queue, Class: e.job.Priority}
			if snapshot != nil && snapshot.CountsType(e.job.Tenant, e.job.Queue, e.job.Type) {
				path.Type = e.job.Type
			}
			add(path, one)
		}
	}, func(all bool) (more bool) {
		p.counted(callback.Try(func() (err error) { // A hook of the client's may panic here too.
			more, err = p.flush(ctx, all)
			return err
		}))
		return more
	})
}

// Flush stores what limits have decided on and was not stored yet, within two seconds. It is for a program that is about to end:
// otherwise the counts of its last second are lost. Calls after it are counted as those before.
func (p *Producer) Flush(ctx context.Context) error {
	_, err := p.flush(ctx, true)
	return err
}

func (p *Producer) flush(ctx context.Context, all bool) (more bool, err error) {
	if more, err = p.counting.Flush(ctx, p.counting.store, p.limits.snapshot.Load(), all); err != nil {
		return false, fmt.Errorf("store counts: %w", err)
	}
	return more, nil
}

// FlushOrLog is Flush for a program that does not run Run and ends: it stores at once what would be stored within a second. What is not is in the log, as it
// changes nothing of what callers were told.
func (p *Producer) FlushOrLog() { p.counting.Hurry() }

// counted logs counts that were not stored.
func (p *Producer) counted(err error) {
	if err != nil {
		p.config.Logger.Warn().Err(err).Bool("in_doubt", store.InDoubt(err)).Msg("decisions are not counted")
	}
}
